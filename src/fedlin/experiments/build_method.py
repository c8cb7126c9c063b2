"""The method and the plan of a run, from what a file says."""

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import aggregation, algorithms, compressors, links, matrices, privacy, theory
from fedlin.aggregation import Aggregator
from fedlin.algorithms.momentum import momentum
from fedlin.checks import unknown_name
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Method
from fedlin.errors import ArgumentError, UnknownError
from fedlin.experiments import config
from fedlin.experiments.own_code import call_own, is_own
from fedlin.links import Link
from fedlin.matrices import MatrixCompressor
from fedlin.plan import Plan, draw_steps
from fedlin.problems.problem import Problem


def _makers(module: ModuleType, kind: type) -> dict[str, Callable[..., Any]]:
    """The public functions of a module that return a `kind`, in alphabetical order."""
    public = {name: value for name, value in sorted(vars(module).items()) if not name.startswith("_")}
    return {
        name: value
        for name, value in public.items()
        if inspect.isroutine(inspect.unwrap(value)) and inspect.signature(value).return_annotation is kind
    }


Known = Mapping[str, Callable[..., Any]]
MOMENTUM = "momentum"
METHODS: dict[str, Callable[..., Any]] = {name: getattr(algorithms, name) for name in algorithms.__all__}
COMPRESSORS = _makers(compressors, Compressor) | _makers(privacy, Compressor)
MATRIX_COMPRESSORS = _makers(matrices, MatrixCompressor)
LINKS = {
    name: maker for name, maker in _makers(links, Link).items() if "compressor" in inspect.signature(maker).parameters
}
# What an argument of this type may be written as.
_WRITTEN: dict[Any, Known] = {
    Compressor: COMPRESSORS,
    Link | Compressor: {**COMPRESSORS, **LINKS},
    Compressor | MatrixCompressor: {**COMPRESSORS, **MATRIX_COMPRESSORS},
}
THEOREMS = _makers(theory, Plan)
AGGREGATORS = _makers(aggregation, Aggregator)


def algorithm(
    name: str, arguments: Mapping[str, Any], besides: Iterable[str] = config.AlgorithmConfig.model_fields
) -> Method:
    """The method with its arguments; links and compressors are written as text.

    `momentum` is β of Nesterov's momentum around the rounds of any method that may have it. `besides` are the keys a
    file may give that are no arguments, to be named where one is misspelt.

    >>> algorithm("fedlin", {"uplink": "innovation(top_k(10))"}).name
    'fedlin(uplink=innovation(top_k(10)))'
    >>> algorithm("fedlin", {"momentum": 0.9}).name
    'momentum(fedlin)'
    """
    if is_own(name):
        return call_own(name, arguments, Algorithm, "an Algorithm, as fedlin.fedavg() is")
    if name not in METHODS:
        raise ArgumentError(unknown_name("method", name, METHODS))
    signature = inspect.signature(METHODS[name])
    own_arguments = {key: value for key, value in arguments.items() if key != MOMENTUM}
    for key in own_arguments:
        if key not in signature.parameters:
            raise ArgumentError(unknown_name(f"argument of {name}", key, [*signature.parameters, MOMENTUM, *besides]))
    values = {key: _argument(key, value, signature.parameters[key].annotation) for key, value in own_arguments.items()}
    for key, parameter in signature.parameters.items():
        if parameter.default is parameter.empty and key not in values:
            raise ArgumentError(f"{name} needs {key}: give it, for example {key} = {_example(parameter.annotation)}.")
    method: Method = METHODS[name](**values)
    return momentum(method, arguments[MOMENTUM]) if MOMENTUM in arguments else method


def aggregator(text: str) -> Aggregator:
    """What is made of the uploads, from how it is written.

    >>> aggregator("bucketing(trimmed_mean(1), s=2)")
    bucketing(trimmed_mean(1), s=2)
    """
    made: Aggregator = evaluate(text, AGGREGATORS, "aggregator")
    return made


def _argument(key: str, value: object, kind: object) -> Any:
    if kind == (str | Compressor | MatrixCompressor):  # a word of its own, or how a compressor is written
        return value if value in ("hessian", "zero") else _argument(key, value, Compressor | MatrixCompressor)
    if kind in _WRITTEN:
        if not isinstance(value, str):
            raise ArgumentError(f'{key} = {value!r} is not allowed: write it as text, such as "top_k(10)".')
        return evaluate(value, _WRITTEN[kind], key)
    if kind is bool and not isinstance(value, bool):
        raise ArgumentError(f"{key} = {value!r} is not allowed: give true or false.")
    return value


def _example(kind: object) -> str:
    return '"top_k(10)"' if kind in _WRITTEN else "10" if kind is int else "0.1"


def steps(tau: int | config.SpreadConfig | config.EachConfig, clients: int) -> NDArray[np.integer]:
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
        try:
            made: Plan = evaluate(setting.eta, THEOREMS, "theorem", problem=problem, tau=tau, rounds=rounds)
        except UnknownError as error:
            raise UnknownError(
                f'{error} eta = "{setting.eta}" needs it: give eta_bar = "tuned". A table that is prepared has an '
                "intercept, which is not penalised, unless prepare says intercept = false."
            ) from error
        return made
    return Plan(tau, _number(setting.eta, tuned))


def _number(setting: float | str | None, tuned: float | None) -> float:
    value = tuned if isinstance(setting, str) else setting
    assert value is not None  # the model asks for one of eta and eta_bar, and tuning comes first
    return value


def evaluate(text: str, known: Known, what: str, **options: object) -> Any:
    """The value of `text`; a bare name is called without arguments, and a call may name known functions only.

    `options` fills parameters of the outermost function that the text leaves open, where it has them.

    >>> from fedlin.compressors import top_k
    >>> from fedlin.links import innovation
    >>> evaluate("innovation(top_k(10))", {"innovation": innovation, "top_k": top_k}, "link")
    innovation(top_k(10))
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:  # a null character is the one or the other, by the version of Python
        raise _unreadable(text, what) from error
    if not isinstance(node, ast.Name | ast.Call):
        raise _unreadable(text, what)
    return _call(node, known, what, text, options)


def _call(node: ast.expr, known: Known, what: str, text: str, options: Mapping[str, Any]) -> Any:
    function, called = (node.func, node) if isinstance(node, ast.Call) else (node, None)
    if not isinstance(function, ast.Name):
        raise _unreadable(text, what)
    if function.id not in known:
        raise ArgumentError(unknown_name(what, function.id, known))
    if called is not None and any(keyword.arg is None for keyword in called.keywords):
        raise _unreadable(text, what)
    positional = [_value(argument, known, what, text) for argument in called.args] if called else []
    named = (
        {str(keyword.arg): _value(keyword.value, known, what, text) for keyword in called.keywords} if called else {}
    )
    signature = inspect.signature(known[function.id])
    open_ones = {name: value for name, value in options.items() if name in signature.parameters and name not in named}
    try:
        signature.bind(*positional, **named, **open_ones)
    except TypeError as error:
        parameters = ", ".join(name for name in signature.parameters if name not in options)
        raise ArgumentError(f"{text}: {error}; {function.id} takes ({parameters}).") from error
    return known[function.id](*positional, **named, **open_ones)


def _value(node: ast.expr, known: Known, what: str, text: str) -> Any:
    if isinstance(node, ast.Name | ast.Call):
        return _call(node, known, what, text, {})
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise _unreadable(text, what) from error


def _unreadable(text: str, what: str) -> ArgumentError:
    return ArgumentError(f"{text!r} is not a {what}: write a name, or a name with arguments such as top_k(10).")
