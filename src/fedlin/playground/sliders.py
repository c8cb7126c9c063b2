"""What the sliders say, checked."""

from dataclasses import dataclass
from math import ceil

from fedlin import algorithms
from fedlin.checks import nonnegative, one_of, positive, positive_integer, real
from fedlin.columns import column
from fedlin.core import Method
from fedlin.links import error_feedback, innovation, plain

DIM = 20  # d, small enough for a redraw while a slider moves
FEDLIN, FEDAVG = "FedLin", "FedAvg"
METHODS: dict[str, Method] = {
    FEDLIN: algorithms.fedlin(),
    FEDAVG: algorithms.fedavg(),
    "FedNova": algorithms.fednova(),
    "SCAFFOLD": algorithms.scaffold(),
    "gradient descent": algorithms.gradient_descent(),
}
MESSAGES = ("gradients", "gradients and models")
MEMORIES = {"error feedback": error_feedback, "nothing": plain, "last value sent": innovation}
MEASURES = {name: column(name).label for name in ("gap", "distance")}
CERTIFIED = 32.0  # on the slider of steps: the certified step, which is about so many times Theorem 1's
AXES = {"rounds": "communication rounds", "bytes": "megabytes sent, up and down, all clients"}


@dataclass(frozen=True)
class Sliders:
    """`up` and `down` are the per cent of a message's entries that are sent; `step` counts the theorem's own step.

    With whole messages a step of `CERTIFIED` is the certified one.

    >>> Sliders(up=25).sent
    (5, 20)
    """

    method: str = FEDLIN
    clients: int = 10  # m
    alpha: float = 10.0  # α, how much the clients' models differ
    local_steps: int = 20  # the most any τ_i may be
    step: float = 1.0
    up: float = 100.0
    down: float = 100.0
    messages: str = "gradients"
    memory: str = "error feedback"
    measure: str = "gap"
    axis: str = "rounds"

    def __post_init__(self) -> None:
        one_of("method", self.method, tuple(METHODS))
        positive_integer("clients", self.clients)
        nonnegative("alpha", self.alpha)
        positive_integer("local_steps", self.local_steps)
        positive("step", self.step)
        for side in ("up", "down"):
            real(side, getattr(self, side), lambda share: 0 < share <= 100, "a percentage in (0, 100]")
        one_of("messages", self.messages, MESSAGES)
        one_of("memory", self.memory, tuple(MEMORIES))
        one_of("measure", self.measure, tuple(MEASURES))
        one_of("axis", self.axis, tuple(AXES))

    @property
    def sent(self) -> tuple[int, int]:
        """k, the entries in a message up and in one down."""
        return ceil(self.up / 100 * DIM), ceil(self.down / 100 * DIM)

    @property
    def certified(self) -> bool:
        """Whether the step is the certified one of FedLin with whole messages."""
        return self.step == CERTIFIED and not self.compressed

    @property
    def compressed(self) -> bool:
        """Whether FedLin is chosen and sends less than everything."""
        return self.method == FEDLIN and min(self.sent) < DIM
