"""From what a file says to the objects that run: the method and the plan of a member."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.checks import unknown
from fedlin import algorithms, compressors, links, privacy, theory
from fedlin.compressors import Compressor
from fedlin.core import Algorithm
from fedlin.errors import ArgumentError
from fedlin.experiments import config
from fedlin.experiments.expression import evaluate
from fedlin.links import Link
from fedlin.plan import Plan, draw_steps
from fedlin.problems.problem import Problem


def _makers(module: ModuleType, kind: type) -> dict[str, Callable[..., Any]]:
    """The public functions of a module that return a `kind`, in alphabetical order."""
    public = {name: thing for name, thing in sorted(vars(module).items()) if not name.startswith("_")}
    return {
        name: thing
        for name, thing in public.items()
        if inspect.isroutine(inspect.unwrap(thing)) and inspect.signature(thing).return_annotation is kind
    }


METHODS: dict[str, Callable[..., Any]] = {name: getattr(algorithms, name) for name in algorithms.__all__}
COMPRESSORS = _makers(compressors, Compressor) | _makers(privacy, Compressor)
LINKS: dict[str, Callable[..., Any]] = {
    name: getattr(links, name) for name in ("error_feedback", "innovation", "plain", "shifted")
}
THEOREMS = _makers(theory, Plan)


def algorithm(
    name: str, arguments: Mapping[str, Any], besides: Iterable[str] = config.AlgorithmConfig.model_fields
) -> Algorithm[Any, Any]:
    """The method with its arguments; links and compressors are written as text.

    `besides` are the keys a file may give that are no arguments, to be named where one is misspelt.

    >>> algorithm("fedlin", {"uplink": "innovation(top_k(10))"}).name
    'fedlin(uplink=innovation(top_k(10)))'
    """
    if name not in METHODS:
        raise ArgumentError(unknown("method", name, METHODS))
    signature = inspect.signature(METHODS[name])
    for key in arguments:
        if key not in signature.parameters:
            raise ArgumentError(unknown(f"argument of {name}", key, [*signature.parameters, *besides]))
    values = {key: _argument(key, value, signature.parameters[key].annotation) for key, value in arguments.items()}
    for key, parameter in signature.parameters.items():
        if parameter.default is parameter.empty and key not in values:
            raise ArgumentError(f"{name} needs {key}: give it, for example {key} = {_example(parameter.annotation)}.")
    made: Algorithm[Any, Any] = METHODS[name](**values)
    return made


def _argument(key: str, value: Any, kind: Any) -> Any:
    if kind is Compressor or kind == (Link | Compressor):
        if not isinstance(value, str):
            raise ArgumentError(f'{key} = {value!r} is not allowed: write it as text, such as "top_k(10)".')
        return evaluate(value, COMPRESSORS if kind is Compressor else {**COMPRESSORS, **LINKS}, key)
    if kind is bool and not isinstance(value, bool):
        raise ArgumentError(f"{key} = {value!r} is not allowed: give true or false.")
    return value


def _example(kind: Any) -> str:
    return '"top_k(10)"' if kind is Compressor else "10" if kind is int else "0.1"


def steps(tau: int | config.SpreadConfig | config.EachConfig, clients: int) -> NDArray[np.integer[Any]]:
    """τ_i of every client.

    >>> steps(3, 2).tolist(), steps(config.EachConfig(each=[1, 4]), 2).tolist()
    ([3, 3], [1, 4])
    """
    if isinstance(tau, config.SpreadConfig):
        return draw_steps(clients, tau.low, tau.high, seed=tau.seed)
    return np.array(tau.each) if isinstance(tau, config.EachConfig) else np.full(clients, tau)


def plan(setting: config.PlanConfig, problem: Problem, rounds: int, tuned: float | None = None) -> Plan:
    """τ_i and η_i by number or theorem; `tuned` is the step size where the file asks for one to be found."""
    tau = steps(setting.tau, problem.clients)
    if setting.eta_bar is not None:
        return Plan.scaled(tau, _number(setting.eta_bar, tuned))
    if isinstance(setting.eta, str) and setting.eta != "tuned":
        made: Plan = evaluate(setting.eta, THEOREMS, "theorem", problem=problem, tau=tau, rounds=rounds)
        return made
    return Plan(tau, _number(setting.eta, tuned))


def _number(given: float | str | None, tuned: float | None) -> float:
    value = tuned if isinstance(given, str) else given
    assert value is not None  # the model asks for one of eta and eta_bar, and tuning comes first
    return value
