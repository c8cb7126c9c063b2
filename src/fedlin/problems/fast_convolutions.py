"""A user's function with some of its operations replaced by equal ones that run faster.

The function is traced to a jaxpr, JAX's record of its operations, and that record is evaluated anew: convolutions and
pooling by `fedlin.problems.convolution`, everything else as it was. Loops, branches and rematerialised parts that hold
one are built again around their changed bodies. Functions with derivatives of the user's own stay as they are.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from fedlin.core import PyTree
from fedlin.memory import inner_programs
from fedlin.problems.convolution import Convolution, Window, convolve, pool

T = TypeVar("T")
Values = list[Any]
Parameters = dict[str, Any]  # of an operation


def with_fast_convolutions(function: Callable[..., T]) -> Callable[..., T]:
    """`function` with the same values and derivatives, whose convolutions stay fast where clients' kernels differ.

    Args:
        function: any function of pytrees of arrays that JAX can trace.

    Returns:
        The function; the very same operations where it has no convolution and no pooling.

    >>> import jax.numpy as jnp
    >>> with_fast_convolutions(lambda a: {"doubled": 2 * a})(jnp.ones(2))["doubled"].tolist()
    [2.0, 2.0]
    """

    def changed(*arguments: PyTree) -> T:
        closed, out = jax.make_jaxpr(function, return_shape=True)(*arguments)
        if not _concerned(closed.jaxpr):
            return function(*arguments)
        result: T = jax.tree.unflatten(jax.tree.structure(out), _evaluate(closed, jax.tree.leaves(arguments)))
        return result

    return changed


def _concerned(jaxpr: Jaxpr) -> bool:
    """Whether some operation may be replaced, here or in a part that can be built again."""
    names = {equation.primitive.name for equation in jaxpr.eqns}
    if names & OPERATIONS.keys():
        return True
    return any(_holds(equation) for equation in jaxpr.eqns)


def _holds(equation: JaxprEqn) -> bool:
    return equation.primitive.name in STRUCTURES and any(map(_concerned, inner_programs(equation)))


def _evaluate(closed: ClosedJaxpr, arguments: Values) -> Values:
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: object) -> Any:
        return variable.val if isinstance(variable, Literal) else known[variable]

    for equation in jaxpr.eqns:
        inputs = [read(variable) for variable in equation.invars]
        results = None
        name = equation.primitive.name
        if name in OPERATIONS:
            result = OPERATIONS[name](equation.params, *inputs)
            results = None if result is None else [result]
        elif _holds(equation):
            results = STRUCTURES[name](equation.params, inputs)
        if results is None:
            results = _as_it_was(jaxpr, equation, inputs)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _as_it_was(jaxpr: Jaxpr, equation: JaxprEqn, values: Values) -> Values:
    """The results of one equation, by JAX's own evaluation of a jaxpr that holds nothing else."""
    inputs = {v: value for v, value in zip(equation.invars, values, strict=True) if not isinstance(v, Literal)}
    about = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    alone = Jaxpr((), list(inputs), list(equation.outvars), [equation], equation.effects, about)
    results: Values = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*inputs.values())
    return results


def _convolve(params: Parameters, images: jax.Array, kernel: jax.Array) -> jax.Array | None:
    return convolve(Convolution(*(params[name] for name in Convolution._fields)), images, kernel)


def _pool(reduce: str) -> Callable[..., Any]:
    return lambda params, array: pool(Window(*(params[name] for name in Window._fields)), reduce, array)


def _inline(params: Parameters, inputs: Values) -> Values:
    return _evaluate(params["jaxpr"], inputs)


def _rematerialise(params: Parameters, inputs: Values) -> Values:
    body = ClosedJaxpr(params["jaxpr"], ())
    again = jax.checkpoint(
        lambda *inputs: _evaluate(body, list(inputs)), prevent_cse=params["prevent_cse"], policy=params["policy"]
    )
    results: Values = again(*inputs)
    return results


def _scan(params: Parameters, inputs: Values) -> Values:
    constants, carried = params["num_consts"], params["num_carry"]
    fixed, start, rows = inputs[:constants], inputs[constants : constants + carried], inputs[constants + carried :]

    def step(carry: Values, row: Values) -> tuple[Values, Values]:
        results = _evaluate(params["jaxpr"], [*fixed, *carry, *row])
        return results[:carried], results[carried:]

    end, stacked = lax.scan(
        step, start, rows, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
    )
    return [*end, *stacked]


def _while(params: Parameters, inputs: Values) -> Values:
    ahead, within = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    results: Values = lax.while_loop(
        lambda carry: _evaluate(params["cond_jaxpr"], [*inputs[:ahead], *carry])[0],
        lambda carry: _evaluate(params["body_jaxpr"], [*inputs[ahead:within], *carry]),
        inputs[within:],
    )
    return results


def _branch(params: Parameters, inputs: Values) -> Values:
    branches = [lambda *inputs, branch=branch: _evaluate(branch, list(inputs)) for branch in params["branches"]]
    results: Values = lax.switch(inputs[0], branches, *inputs[1:])
    return results


# What is replaced: operations by name, and the structures that may hold them.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "conv_general_dilated": _convolve,
    "reduce_window_max": _pool("max"),
    "reduce_window_sum": _pool("sum"),
}
STRUCTURES: dict[str, Callable[[Parameters, Values], Values]] = {
    "jit": _inline,
    "pjit": _inline,
    "checkpoint": _rematerialise,
    "scan": _scan,
    "while": _while,
    "cond": _branch,
}
