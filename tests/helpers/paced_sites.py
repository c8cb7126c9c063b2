"""Sites that take their time, so that a round lasts longer than it takes to look at it, on any machine."""

import time

from fedlin.deploy.flare.programs import make_client
from fedlin.transports.transport import Handler

PACE = 0.2  # seconds an answer takes
SLOW, SLOWER = "slow", 0.5  # the site of this name takes so many seconds more


def make_paced_client(name: str, folder: str, job: str) -> Handler:
    """The site's own handler, slowed down."""
    own = make_client(name, folder, job)

    def answer(phase: str, payload: bytes) -> bytes:
        time.sleep(PACE + SLOWER * (name == SLOW))
        return own(phase, payload)

    return answer
