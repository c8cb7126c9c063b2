"""The protocol: an algorithm is pure functions, and engines decide where they run.

A round is a tuple of phases. In a phase the server broadcasts, every client computes and uploads, the
uploads are averaged, and the server updates. Models are flat vectors; what travels is a message, a pytree
of arrays and encoded payloads (see `fedlin.compressors`) with the same structure in every round.

Gradient descent in it, with one phase:

>>> import fedlin
>>> class Server(NamedTuple):
...     x: Vector  # every server's state has one
>>> def send_gradient(state: None, x: Vector, local: Local) -> tuple[None, Message]:
...     return None, local.oracle.grad(x, local.key)
>>> def step(state: Server, mean: Vector, central: Central) -> Server:
...     return Server(state.x - central.eta * mean)
>>> phase = Phase("gradient", lambda state: state.x, send_gradient, step)
>>> method = Algorithm("descent", Server, lambda x: None, (phase,))
>>> problem = fedlin.problems.quadratic([[[1.0]], [[2.0]]], [[3.0], [100.0]])
>>> fedlin.simulate(method, problem, fedlin.Plan(tau=1, eta=0.5), rounds=100).x.round(6).tolist()
[34.333333]
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
from numpy.typing import NDArray

Array = NDArray[Any]  # on the host, of any precision
Vector = jax.Array
Matrix = jax.Array
Scalar = jax.Array
Key = jax.Array
PyTree = Any  # arrays in tuples, lists and dictionaries, or one alone
Message = PyTree
Numbers = Mapping[str, Any]

S = TypeVar("S")
C = TypeVar("C")
T = TypeVar("T")


class Oracle(NamedTuple):
    """What client i may ask of its own data.

    Attributes:
        loss: f_i(x).
        grad: ∇f_i(x), or an estimate q_i(x) drawn with the key.
        prox: argmin_x f_i(x) + ‖x - u‖²/(2s), as prox(u, s).
        full: ∇f_i(x), exact even where `grad` is an estimate.
        hessian: ∇²f_i(x), a symmetric matrix, exact; a method that asks for it needs `Requirement.HESSIAN`.
        hvp: ∇²f_i(x) v, as hvp(x, v), without the matrix; under the same requirement.
    """

    loss: Callable[[Vector], Scalar]
    grad: Callable[[Vector, Key], Vector]
    prox: Callable[[Vector, Scalar], Vector]
    full: Callable[[Vector], Vector]
    hessian: Callable[[Vector], Matrix]
    hvp: Callable[[Vector, Vector], Vector]


@dataclass(frozen=True)
class Optimizer:
    """Optax's pair of functions, of a model or of the arrays it is made of; two of one digest are the same.

    Attributes:
        digest: What identifies it.
        init: The state before the first step, from the model.
        update: (gradient, state, model) to the update and the next state.
    """

    digest: str
    init: Callable[[PyTree], PyTree] = field(compare=False, repr=False)
    update: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree]] = field(compare=False, repr=False)


class Descend(Protocol):
    """Local work: `steps` times x ← x - eta (∇f_i(x) + shift + pull (x - center)), from x = start.

    `steps` and `eta` are the plan's τ_i and η_i unless given, `center` is `start` unless given. With an `anchor`
    each step takes ∇f_i(x) - ∇f_i(anchor), both over the same draw where the oracle is noisy. `change`, where given,
    is applied to the gradient of every step, or to that difference. With an `optimizer` x ← x + eta u, u what it makes
    of the sum in the parentheses; it remembers nothing from one call to the next.
    """

    def __call__(
        self,
        start: Vector,
        *,
        shift: Vector | float = 0.0,
        pull: Scalar | float = 0.0,
        center: Vector | None = None,
        steps: Scalar | int | None = None,
        eta: Scalar | float | None = None,
        anchor: Vector | None = None,
        change: Callable[[Vector], Vector] | None = None,
        optimizer: Optimizer | None = None,
    ) -> Vector: ...


class Repeat(Protocol):
    """Local work of any other form: `steps` times carry ← step(carry, key), each step with a key of its own.

    `steps` is the plan's τ_i unless given. Whatever a step asks of the oracle counts as often as the step is taken.
    """

    def __call__(self, step: Callable[[T, Key], T], carry: T, *, steps: Scalar | int | None = None) -> T: ...


class Local(NamedTuple):
    """What client i knows besides its state and the broadcast.

    Attributes:
        oracle: Its loss, gradients and proximal operator.
        tau: τ_i.
        eta: η_i.
        descend: Gradient steps, see `Descend`.
        repeat: Local work of any other form, see `Repeat`.
        key: For random numbers; a function of (seed, round, phase, i).
        shared_key: The same on the server and on every client.
        number: i, from 0 to m - 1, so that clients can share out work without a message.
        place: The same among those who take part in the round, for a method with a `cohort`.
    """

    oracle: Oracle
    tau: Scalar
    eta: Scalar
    descend: Descend
    repeat: Repeat
    key: Key
    shared_key: Key
    number: Scalar
    place: Scalar


class Central(NamedTuple):
    """What the server knows besides its state and the mean upload.

    Attributes:
        participation: The share of the clients' weight that answered.
        key: For random numbers; a function of (seed, round, phase).
        shared_key: The same on the server and on every client.
        eta: The mean of η_i, for methods whose step the server takes.
        largest: The largest weight of one client in the mean upload.
    """

    participation: Scalar
    key: Key
    shared_key: Key
    eta: Scalar
    largest: Scalar


class Mechanism(NamedTuple):
    """What makes an upload private: it is clipped to the norm `clip`, and noise hides what is left of one client.

    Another client in its place moves the upload by at most 2·clip, and the mean by that times its weight. The noise in
    every entry has `noise` times this as its standard deviation; the client adds it or, if `central`, the server.

    Attributes:
        clip: The largest norm of an upload.
        noise: The standard deviation over how far one client can move the upload.
        central: Whether the server adds the noise.
    """

    clip: float
    noise: float
    central: bool


# (decoded uploads stacked along clients, the clients' numbers, which of them count, key) to the uploads as they arrive
Tamper = Callable[[Message, Vector, Vector, Key], Message]


@dataclass(frozen=True)
class Phase(Generic[S, C]):
    """Broadcast, compute, average, update. The upload reaches `server` decoded and averaged.

    Attributes:
        name: What it is called in tables of bytes.
        down: The broadcast, from the server's state.
        client: A client's new state and its upload, from its state, the broadcast, and what it knows besides.
        server: The server's new state, from its state, the mean upload, and what it knows besides.
        gradient: The estimate of ∇f in the server's state, at the model that was broadcast, where it has one.
        tamper: What clients that work together make of all uploads before they are averaged, see `Tamper`; in
            simulations only. None where clients are honest.
    """

    name: str
    down: Callable[[S], Message]
    client: Callable[[C, Message, Local], tuple[C, Message]]
    server: Callable[[S, Message, Central], S]
    gradient: Callable[[S], Vector] | None = None
    tamper: Tamper | None = None


MethodPhase = Phase[Any, Any]  # of a method whose states only it knows


class Requirement(StrEnum):
    """What an algorithm may need; who runs or wraps it looks before anything is compiled."""

    PROX = "an exact proximal operator"
    ONE_STEP_SIZE = "one step size for all clients"
    ONE_STEP_COUNT = "one number of local steps for all clients"
    EVERY_CLIENT = "every client in every round"
    STRONG_CONVEXITY = "a strongly convex problem"
    OWN_MODEL = "to begin each round with the model it ended the last one with"
    PLAIN_STEPS = "local steps that are η_i times a gradient"
    HESSIAN = "second derivatives"
    EQUAL_WEIGHTS = "clients of equal weight"
    MEAN_UPLOAD = "the mean of the uploads, which its memories follow"


@dataclass(frozen=True, repr=False)
class Algorithm(Generic[S, C]):
    """A method as pure functions.

    Attributes:
        name: What it is called in results and reports.
        init_server: The server's state at the starting point; it has a field x, the model.
        init_client: A client's state at the starting point.
        phases: The phases of a round.
        opening: Those of the first round, where they are others.
        renewal: The probability with which a later round runs the phases of the first one, by a coin that all share.
        requires: What it needs of a run; checked before anything is compiled.
        check: Raises for a dimension it cannot serve.
        clients: m, where it is made for so many clients and no others.
        cohort: How many take part in a round, where it is made for so many and each needs to know its place.
        mechanisms: What makes each phase's upload private; empty where none is.
        recipe: How it was made, so that engines can rebuild it with other numbers.
    """

    name: str
    init_server: Callable[[Vector], S]
    init_client: Callable[[Vector], C]
    phases: tuple[Phase[S, C], ...]
    opening: tuple[Phase[S, C], ...] | None = None
    renewal: Scalar | float | None = None  # a number, concrete or traced
    requires: frozenset[Requirement] = frozenset()
    check: Callable[[int], None] = lambda dim: None
    clients: int | None = None
    cohort: int | None = None
    mechanisms: tuple[Mechanism | None, ...] = ()
    recipe: "MethodRecipe | None" = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.name

    def phases_in(self, opening: bool) -> tuple[Phase[S, C], ...]:
        """The phases of the first round and of those that repeat it, if `opening`, or of any other.

        Args:
            opening: Whether it is the first round, or one that repeats it.

        Returns:
            The phases, in order.
        """
        return self.opening if opening and self.opening is not None else self.phases


Method = Algorithm[Any, Any]  # whose states only it knows


@dataclass(frozen=True, repr=False)
class MethodRecipe:
    """How an algorithm was made: engines rebuild it with traced numbers, so that a new β needs no new program.

    `structure` fixes the program, `numbers` are its inputs. A number left at None is taken from the problem. Of an
    argument that is a method itself, as a wrapper has one, its recipe is in the structure and its numbers are among
    the numbers, named "argument.number".

    Attributes:
        build: The function that makes the algorithm.
        structure: Its arguments that fix the program.
        numbers: Its arguments that are inputs of the program.
    """

    build: Callable[..., Method]
    structure: tuple[tuple[str, Any], ...]
    numbers: tuple[tuple[str, float | None], ...]

    def with_numbers(self, numbers: Numbers) -> Method:
        """The algorithm with these numbers in place, concrete or traced.

        Args:
            numbers: A value for each name in `numbers`.

        Returns:
            The algorithm.
        """
        arguments = dict(self.structure)
        for argument, value in self.structure:
            if isinstance(value, MethodRecipe):
                first = f"{argument}."
                inner = {name.removeprefix(first): n for name, n in numbers.items() if name.startswith(first)}
                arguments[argument] = value.with_numbers(inner)
        return self.build(**arguments, **{name: number for name, number in numbers.items() if "." not in name})

    def __repr__(self) -> str:
        # The same in every process: checkpoints and federations compare it.
        return f"{self.build.__name__}{self.structure!r}"


Structure = Method | MethodRecipe  # an algorithm itself, or its recipe without numbers


def structure(algorithm: Method) -> Structure:
    """What of an algorithm fixes its program.

    Args:
        algorithm: The method.

    Returns:
        Its recipe without numbers, or the method itself where it has no recipe.
    """
    return algorithm if algorithm.recipe is None else replace(algorithm.recipe, numbers=())


def rebuild(structure: Structure, numbers: Numbers) -> Method:
    """The algorithm of this structure with these numbers, concrete or traced.

    Args:
        structure: What `structure` returned.
        numbers: A value for each number of the recipe.

    Returns:
        The algorithm.
    """
    return structure.with_numbers(numbers) if isinstance(structure, MethodRecipe) else structure


def __getattr__(name: str) -> Requirement:
    if name in Requirement.__members__ and name != "OWN_MODEL":
        warnings.warn(
            f"fedlin.core.{name} is now fedlin.core.Requirement.{name}, and goes in version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        return Requirement[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
