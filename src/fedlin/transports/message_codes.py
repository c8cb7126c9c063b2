"""Messages of a job, each with a code that proves who sent it, whatever carried it.

What carries a message may name the wrong sender: NVIDIA FLARE routes by a name in the message, which a participant that
runs software of its own can write. So server and site agree on keys once a job, and every message comes with a code
under them that covers the job, the site, the phase and the bytes: it is accepted from the server of the federation
alone, by the site it was meant for, in the job it was sent in. A reply also covers the code of its request.

The keys are agreed on by X25519 between key pairs that are made for one site in one job and never written down; each
participant's certificate vouches for its own in its `introduction`, which holds nothing secret. The code is
AES-256-GCM's over bytes that are authenticated and not encrypted (GMAC): TLS encrypts them, and a signature would cost
more than all else that is done for a message, be it small or large.
"""

import json
from itertools import count
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlin.errors import WireError
from fedlin.transports.signatures import Sender, Signer

_KEY, _NONCE, _TAG = 32, 12, 16  # bytes


class Context(NamedTuple):
    """What a message is about, besides its bytes: who sends it and who checks it must mean the same."""

    job: str
    site: str
    phase: str
    request: bytes = b""  # the code of the request that a reply answers

    def covered(self, message: bytes) -> bytes:
        """The bytes that a code covers; what stands before the message ends with the only zero byte in it."""
        about = json.dumps([self.job, self.site, self.phase, self.request.hex()]).encode()
        return b"".join((about, b"\0", message))


class JobKey:
    """One participant's key pair for a site's messages in a job; its certificate vouches for it in `introduction`."""

    def __init__(self, signer: Signer, job: str, site: str) -> None:
        self.job = job
        self.site = site
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        voucher = signer.sign(_vouch(job, site, self.public))
        self.introduction = json.dumps([signer.certificate.decode(), self.public.hex(), voucher.hex()]).encode()

    def agree(self, public: bytes) -> bytes:
        """The secret that this key pair and the owner of another one share."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(public))


class Channel:
    """The messages between the owner of a key of a job and one other participant.

    Args:
        root: The certificate of the federation's authority, as PEM.
        name: The other one, by the name in its certificate.
        own: The key of this side.
    """

    def __init__(self, root: bytes, name: str, own: JobKey) -> None:
        self.name = name
        self._root = root
        self._own = own
        self._numbers = count()  # a number is used for one message alone, or the code would give the key away
        self._keys: tuple[AESGCM, AESGCM] | None = None  # for what is sent and for what comes

    @property
    def open(self) -> bool:
        """Whether the other one has introduced itself."""
        return self._keys is not None

    def introduce(self, introduction: bytes) -> None:
        """Agree on keys with the other one, if its certificate is good and vouches for its key of this job."""
        try:
            certificate, shown, voucher = json.loads(introduction)
            encoded, public, signature = certificate.encode(), bytes.fromhex(shown), bytes.fromhex(voucher)
            secret = self._own.agree(public)
        except (ValueError, TypeError, AttributeError, RecursionError) as cause:
            raise WireError(f"what {self.name} sent is no introduction.") from cause
        sender = Sender(self._root, self.name)
        sender.introduce(encoded)
        if not sender.signed(_vouch(self._own.job, self._own.site, public), signature):
            raise WireError(f"the certificate of {self.name} does not vouch for its key of this job and site.")
        mine, job = self._own.public, self._own.job
        self._keys = AESGCM(_derive(secret, job, mine, public)), AESGCM(_derive(secret, job, public, mine))

    def close(self) -> None:
        """Have the other one introduce itself again, which may have other keys by now."""
        self._keys = None

    def code(self, context: Context, message: bytes) -> bytes:
        """What proves to the other one that this side sent a message."""
        sent, _ = self._agreed()
        nonce = next(self._numbers).to_bytes(_NONCE)
        return nonce + sent.encrypt(nonce, b"", context.covered(message))

    def check(self, context: Context, message: bytes, code: bytes) -> None:
        """Refuse a message that the other one did not send."""
        _, came = self._agreed()
        try:
            if len(code) != _NONCE + _TAG:
                raise InvalidTag
            came.decrypt(code[:_NONCE], code[_NONCE:], context.covered(message))
        except InvalidTag as cause:
            raise WireError(f"{self.name} did not send this message for this site, job and phase.") from cause

    def _agreed(self) -> tuple[AESGCM, AESGCM]:
        if self._keys is None:
            raise WireError(f"the message came without an introduction of {self.name}.")
        return self._keys


def _vouch(job: str, site: str, public: bytes) -> bytes:
    """What a certificate's key signs for a key of a job and site; no other statement begins like it."""
    return json.dumps(["key for the codes of a job", job, site]).encode() + b"\0" + public


def _derive(secret: bytes, job: str, sender: bytes, receiver: bytes) -> bytes:
    """The key of one direction."""
    about = json.dumps(["codes of a job", job, sender.hex(), receiver.hex()]).encode()
    return HKDF(SHA256(), _KEY, None, about).derive(secret)
