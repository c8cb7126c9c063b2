"""The way to write a wrapper: a method in, a method out, with other local work, uploads or another end of every round.

A wrapper is a `@factory` whose first argument is a method and which returns what `wrap` makes of it. The numbers of the
method stay inputs of the program, and so do those the factory names: `fedlin.clipped` is a whole one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fedlin.checks import shown, unknown_name
from fedlin.core import (
    Algorithm,
    Central,
    Key,
    Local,
    Message,
    Method,
    MethodPhase,
    PyTree,
    Requirement,
    Tamper,
    Vector,
)
from fedlin.errors import ArgumentError

EndRound = Callable[[PyTree, Vector, Vector, Central], tuple[PyTree, Vector]]


class WrappedServer(NamedTuple):
    """The method's state, and what the wrapper remembers.

    Attributes:
        x: The model that rounds begin with.
        inner: The method's state.
        own: What the wrapper remembers.
    """

    x: Vector  # the model that rounds begin with
    inner: PyTree
    own: PyTree


def wrap(
    method: Method,
    name: str,
    *,
    local: Callable[[Local], Local] | None = None,
    start: Callable[[Vector], PyTree] = lambda x: None,
    end_round: EndRound | None = None,
    tamper: Tamper | None = None,
    tampered_phase: str | None = None,
) -> Method:
    """The method with other local work, other uploads, another end of every round, or all of these.

    Args:
        method: What is wrapped.
        name: What the result is called; the method's name follows in parentheses.
        local: What a client is handed in place of its own `Local`; see `with_gradients`.
        start: What the wrapper remembers at the server before the first round, from the first model.
        end_round: (what it remembers, the model before the round, the model the method ended it with, central) to what
            it remembers next and the model the next round begins with.
        tamper: What becomes of all uploads of a phase before the server has them; after what a wrapper inside did.
        tampered_phase: The name of the phase whose uploads `tamper` is for, where it is not for those of all phases.

    Returns:
        The wrapped method. It needs of a run what the method needs, and sends what the method sends.
    """
    if not isinstance(method, Algorithm):
        raise ArgumentError(f"method = {shown(method)} is not allowed: give a method such as fedlin.fedavg().")
    if end_round is not None and Requirement.OWN_MODEL in method.requires:
        raise ArgumentError(
            f"{method.name} needs {Requirement.OWN_MODEL}, and {name} puts another one in its place: wrap a method "
            "that does not, such as fedlin.fedavg(), fedlin.scaffold() or fedlin.fedlin() with whole models."
        )
    wrapped = replace(method, name=f"{name}({method.name})", recipe=None)
    if local is not None:
        wrapped = _each_phase(wrapped, lambda phase, last: _with_local(phase, local))
    if tamper is not None:
        known = [phase.name for phase in method.phases]
        if tampered_phase not in (None, *known):
            raise ArgumentError(unknown_name(f"phase of {method.name}", str(tampered_phase), known))
        wrapped = _each_phase(
            wrapped,
            lambda phase, last: _with_tamper(phase, tamper) if tampered_phase in (None, phase.name) else phase,
        )
    if end_round is not None:
        wrapped = replace(
            _each_phase(wrapped, lambda phase, last: _within(phase, end_round if last else None)),
            init_server=lambda x: WrappedServer(x, method.init_server(x), start(x)),
        )
    return wrapped


def with_gradients(local: Local, change: Callable[[Vector], Vector]) -> Local:
    """A client's `Local` that changes every gradient it takes, in its local steps too; those are taken one by one.

    Args:
        local: The client's `Local`.
        change: From a gradient to the vector that is used in its place.

    Returns:
        A `Local` with changed gradients.
    """
    oracle = local.oracle._replace(
        grad=lambda x, key: change(local.oracle.grad(x, key)), full=lambda x: change(local.oracle.full(x))
    )

    def descend(start: Vector, **options: Any) -> Vector:
        more = options.pop("change", None)  # of a wrapper around this one
        return local.descend(start, change=change if more is None else lambda grad: more(change(grad)), **options)

    return local._replace(oracle=oracle, descend=descend)


def _each_phase(method: Method, change: Callable[[MethodPhase, bool], MethodPhase]) -> Method:
    """The method with every phase changed; `change` also gets whether it is the last of its round."""

    def changed(phases: tuple[MethodPhase, ...]) -> tuple[MethodPhase, ...]:
        return tuple(change(phase, number == len(phases)) for number, phase in enumerate(phases, 1))

    opening = None if method.opening is None else changed(method.opening)
    return replace(method, phases=changed(method.phases), opening=opening)


def _with_local(phase: MethodPhase, change: Callable[[Local], Local]) -> MethodPhase:
    # What the server then holds is no longer an estimate of ∇f.
    return replace(
        phase, client=lambda state, message, local: phase.client(state, message, change(local)), gradient=None
    )


def _with_tamper(phase: MethodPhase, tamper: Tamper) -> MethodPhase:
    before = phase.tamper

    def both(uploads: Message, numbers: Vector, present: Vector, key: Key) -> Message:
        return tamper(uploads if before is None else before(uploads, numbers, present, key), numbers, present, key)

    return replace(phase, tamper=both, gradient=None)


def _within(phase: MethodPhase, end_round: EndRound | None) -> MethodPhase:
    """The phase on the state inside a `WrappedServer`; the last of a round ends it."""
    gradient = phase.gradient

    def server(state: WrappedServer, message: Message, central: Central) -> WrappedServer:
        inner = phase.server(state.inner, message, central)
        if end_round is None:
            return state._replace(inner=inner)
        own, x = end_round(state.own, state.x, inner.x, central)
        return WrappedServer(x, inner._replace(x=x), own)

    return replace(
        phase,
        down=lambda state: phase.down(state.inner),
        server=server,
        gradient=None if gradient is None else lambda state: gradient(state.inner),
    )
