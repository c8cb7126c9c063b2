"""NVIDIA FLARE carries the messages of a federation: a site's side.

FLARE runs a component in the job's process at each site. It sends word that it is there, and answers the server of its
federation alone, whatever FLARE says of who asks.
"""

import json
import logging
import threading
import time
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from fedlin.errors import WireError
from fedlin.transports.flare_job import JobPlace, job_place, open_log, program
from fedlin.transports.flare_messages import ANSWER, INTRODUCE, NOTHING, READY, SERVER, Messenger, Sealed
from fedlin.transports.message_codes import Channel, Context
from fedlin.transports.refusals import Refusals
from fedlin.transports.transport import Handler

WORD = 2.0  # seconds without a request after which a site sends word again: its connection may have been away
_AGAIN = 0.2  # seconds after which it does where the server did not take it
_REPAIR = 2.0  # seconds after which what failed at the start is tried again
_log = logging.getLogger(__name__)


class SiteAnswers:
    """Answers the server's messages: `program(name, kit, sent)` makes the handler, with the first that is the server's.

    One message at a time, whatever thread it came on. No exception leaves: FLARE would send its text, and with it
    whatever data it quotes.
    """

    def __init__(self, place: JobPlace, server: str) -> None:
        """`server` is the cell that may ask."""
        self.asked = -WORD  # when the server did
        self._place = place
        self._key = place.key("client", place.name)
        settings = json.loads((place.kit / "startup" / "fed_client.json").read_text(encoding="utf-8"))
        self._server = server
        self._channel = Channel(place.root, settings["servers"][0]["identity"], self._key)
        self._refusals = Refusals(place.kit)
        self._handler: Handler | None = None
        self._turn = threading.Lock()

    @property
    def identity(self) -> bytes:
        """What tells this process from others of the same site."""
        return self._key.public

    def introduce(self, caller: str, phase: str, message: Sealed) -> Sealed:
        """This site's introduction in exchange for the server's; nothing to others."""
        try:
            with self._turn:
                return self._introduce(caller, message)
        except Exception:
            _log.exception("an introduction was not answered")
            return NOTHING

    def answer(self, caller: str, phase: str, message: Sealed) -> Sealed:
        """The reply and its code; nothing to others than the server."""
        try:
            with self._turn:
                return self._answer(caller, phase, message)
        except BaseException:
            _log.exception("a message of phase %.80r was not answered", phase)
            return NOTHING
        finally:
            self.asked = time.monotonic()

    def _introduce(self, caller: str, message: Sealed) -> Sealed:
        try:
            self._check_caller(caller)
            self._channel.introduce(message.payload)
        except WireError as refusal:
            self._refuse(caller, "introduction", refusal)
            return NOTHING
        return Sealed(self._key.introduction)

    def _answer(self, caller: str, phase: str, message: Sealed) -> Sealed:
        context = Context(self._place.job, self._place.name, phase)
        try:
            self._check_caller(caller)
            self._channel.check(context, *message)
        except WireError as refusal:
            self._refuse(caller, phase, refusal)
            return NOTHING
        if self._handler is None:
            self._handler = program()(self._place.name, str(self._place.kit), self._place.sent)
        reply = self._handler(phase, message.payload)
        return Sealed(reply, self._channel.code(context._replace(request=message.code), reply))

    def _check_caller(self, caller: str) -> None:
        if caller != self._server:
            raise WireError("sites answer the server alone.")

    def _refuse(self, caller: str, phase: str, why: WireError) -> None:
        # Whoever asks chooses the caller's name, and all of it came from the server: these are one sender's.
        line = f"refused a call in the name of {caller!r:.80}: {why}"
        self._refusals.report(SERVER, line, "call refused", caller=caller[:64], phase=phase[:64], why=str(why))


class FlareSite(Executor):  # type: ignore[misc] # FLARE has no types
    """A site's component: from the start of its process's part of the job on it answers."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """FLARE's hook."""
        if event_type == EventType.START_RUN:
            threading.Thread(target=self._take_part, args=(job_place(fl_ctx),), name="fedlin", daemon=True).start()
        elif event_type == EventType.END_RUN:
            self._over.set()

    def execute(self, task_name: str, *_: Any) -> Any:
        """FLARE's hook for its own kind of tasks, of which a job here has none."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _take_part(self, place: JobPlace) -> None:
        """Answer, and send word when the server has not asked for a while, until the job is over."""
        messenger = Messenger(place.cell, place.job)
        answers = self._prepare(place, messenger.name(SERVER))
        if answers is None:
            return
        messenger.serve(INTRODUCE, answers.introduce)
        messenger.serve(ANSWER, answers.answer)
        known = self._send_word(messenger, answers)
        while not self._over.wait(WORD if known else _AGAIN):
            if time.monotonic() - answers.asked >= WORD:
                known = self._send_word(messenger, answers)

    def _prepare(self, place: JobPlace, server: str) -> SiteAnswers | None:
        """What answers, once its files can be read and written; None where the job is over before."""
        logs = False
        while True:
            try:
                if not logs:
                    open_log(place.kit)
                    logs = True
                return SiteAnswers(place, server)
            except Exception:  # FLARE would go on without a word
                _log.exception("this site cannot take part yet")
            if self._over.wait(_REPAIR):
                return None

    @staticmethod
    def _send_word(messenger: Messenger, answers: SiteAnswers) -> bool:
        """Tell the server that this site is there; whether it took the word, for which its job may be too young."""
        try:
            messenger.send(SERVER, READY, Sealed(answers.identity), WORD)
        except Exception as error:
            _log.debug("the server did not take the word that this site is there: %r", error)
            return False
        return True
