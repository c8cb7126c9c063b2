"""Every mistake is told before anything is compiled: the argument, what was given, what is allowed.

A new check adds a row to the table and no test code.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from compilation import compilations
from fedlin import Plan, Stop, data, privacy, problems, simulate, simulate_many, theory, trackers
from fedlin.errors import ArgumentError, CheckpointError, DataError, FedLinError, PlanError, UnknownError
from fedlin.playground.sliders import Sliders

M, D = 3, 2
A, B = np.stack([np.eye(D) * (i + 1) for i in range(M)]), np.ones((M, D))
ROWS = np.random.default_rng(0).standard_normal((M, 4, D))
LABELS = np.where(np.arange(12).reshape(M, 4) % 2, 1.0, -1.0)
QUADRATIC = problems.quadratic(A, B)
ONES = problems.quadratic(np.ones((2, 1, 1)), np.ones((2, 1)))
LOGISTIC = problems.logistic(ROWS, LABELS, l2=0.1)
BATCHES = problems.minibatch(LOGISTIC, 2)
PLAN = Plan(2, 0.1)
ZEROS = np.zeros(2)
NAMES = ("loss", "grad_norm", "bytes_up", "bytes_down", "gradients", "seconds")
RUN = fedlin.Result("fedlin", "done", B[0], dict.fromkeys(NAMES, ZEROS))


def mean_square(x: Any, batch: Any) -> Any:
    return jnp.mean((x[None] - batch) ** 2)


def sum_square(x: Any, batch: Any) -> Any:
    return jnp.sum((x[None] - batch) ** 2)


NAMELESS = fedlin.Algorithm("nameless", lambda x: (x,), lambda x: None, ())
CUSTOM = problems.from_loss(mean_square, np.zeros(D), ROWS)


def run(
    algorithm: Any = None, problem: Any = QUADRATIC, plan: Any = PLAN, rounds: Any = 3, **rest: Any
) -> Callable[[], object]:
    """A call of `simulate` that has yet to be made."""
    return lambda: simulate(fedlin.fedlin() if algorithm is None else algorithm, problem, plan, rounds, **rest)


def timed(clock: fedlin.Clock) -> Callable[[], object]:
    """A clock that has yet to read a run."""
    return lambda: clock.time(RUN, fedlin.fedlin(), QUADRATIC, PLAN)


def staged(algorithm: Any = None, clock: Any = None, accuracy: float = 1.0, first: int = 1) -> Callable[[], object]:
    """A call of `flanp` that has yet to be made."""
    method, chosen = algorithm or fedlin.fedlin(), clock or fedlin.Clock(1.0)
    return lambda: fedlin.flanp(method, QUADRATIC, PLAN, chosen, 3, accuracy=accuracy, first=first)


def with_entry(array: np.ndarray[Any, Any], value: float) -> np.ndarray[Any, Any]:
    """The array with its last entry replaced."""
    other = array.copy()
    other.flat[-1] = value
    return other


class Case(NamedTuple):
    name: str
    call: Callable[[], object]
    error: type[FedLinError]
    words: tuple[str, ...]  # the argument, what was given, what is allowed


CASES = [
    # Plans
    Case("tau too short", run(plan=Plan([1, 2], 0.1)), PlanError, ("tau", "2 entries", "3 clients", "array of 3")),
    Case("eta too long", run(plan=Plan(1, [0.1] * 4)), PlanError, ("eta", "4 entries", "3 clients", "array of 3")),
    Case("tau zero", lambda: Plan([1, 0, 2], 0.1), PlanError, ("tau", "holds 0", "at least 1")),
    Case("tau negative", lambda: Plan(-3, 0.1), PlanError, ("tau", "-3", "at least 1")),
    Case("tau not whole", lambda: Plan([1.5, 2, 2], 0.1), PlanError, ("tau", "1.5", "whole number")),
    Case("tau NaN", lambda: Plan(np.nan, 0.1), PlanError, ("tau", "NaN")),
    Case("tau beyond counting", lambda: Plan(2.0**40, 0.1), PlanError, ("tau", "1.09951e+12", "2147483647")),
    Case("tau words", lambda: Plan("many", 0.1), PlanError, ("tau", "many", "numbers")),
    Case("tau empty", lambda: Plan([], 0.1), PlanError, ("tau", "(0,)", "(clients,)")),
    Case("tau of three axes", lambda: Plan(np.ones((1, 1, 1)), 0.1), PlanError, ("tau", "(1, 1, 1)", "clients")),
    Case("eta zero", lambda: Plan(1, [0.1, 0, 0.1]), PlanError, ("eta", "holds 0", "above 0")),
    Case("eta negative", lambda: Plan(1, -0.5), PlanError, ("eta", "-0.5", "above 0")),
    Case("eta NaN", lambda: Plan(1, [0.1, np.nan]), PlanError, ("eta", "NaN", "(1,)")),
    Case("eta infinite", lambda: Plan(1, np.inf), PlanError, ("eta", "infinite")),
    Case("eta_bar", lambda: Plan.scaled([1, 2], 0.0), ArgumentError, ("eta_bar", "0.0", "above 0")),
    Case("plan too short", run(plan=Plan(np.ones((2, M)), 0.1)), PlanError, ("tau", "2 rounds", "the run has 3")),
    Case("steps drawn from nothing", lambda: fedlin.draw_steps(3, 5, 4), PlanError, ("high", "4", "5", "low ≤ high")),
    Case(
        "steps beyond counting",
        lambda: fedlin.draw_steps(3, 2**32, 2**33),
        ArgumentError,
        ("low = 4294967296", "at most 2147483647"),
    ),
    Case(
        "steps for no round", lambda: fedlin.draw_steps(3, 1, 4, rounds=0), ArgumentError, ("rounds = 0", "at least 1")
    ),
    Case("steps for nobody", lambda: fedlin.draw_steps(0, 1, 4), ArgumentError, ("clients", "0", "at least 1")),
    Case(
        "epochs without batches", lambda: fedlin.epochs(LOGISTIC, 1), PlanError, ("Logistic", "no mini-batches", "size")
    ),
    Case(
        "epochs of noise",
        lambda: fedlin.epochs(problems.noisy(QUADRATIC, 0.1), 1),
        PlanError,
        ("Quadratic", "no mini-batches", "minibatch(problem, size)"),
    ),
    Case("no epochs", lambda: fedlin.epochs(BATCHES, 0), ArgumentError, ("number = 0", "above 0")),
    Case("epochs of a list", lambda: fedlin.epochs([ROWS], 1), ArgumentError, ("problem = [", "Problem")),  # type: ignore[arg-type]
    # Compressors and links
    Case(
        "k above d",
        run(fedlin.fedlin(uplink=fedlin.top_k(5))),
        ArgumentError,
        ("k", "5", "2 entries", "from 1 to 2"),
    ),
    Case("k above d, random", run(fedlin.fedlin(downlink=fedlin.rand_k(5))), ArgumentError, ("k = 5", "from 1 to 2")),
    Case("k zero", lambda: fedlin.top_k(0), ArgumentError, ("k = 0", "at least 1")),
    Case("k negative", lambda: fedlin.rand_k(-1), ArgumentError, ("k = -1", "at least 1")),
    Case("k a fraction", lambda: fedlin.top_k(1.5), ArgumentError, ("k = 1.5", "whole number")),  # type: ignore[arg-type]
    Case(
        "k a float after the same int",
        lambda: (fedlin.top_k(2), fedlin.top_k(2.0)),  # type: ignore[arg-type]
        ArgumentError,
        ("k = 2.0", "whole number"),
    ),
    Case(
        "k a truth after one",
        lambda: (fedlin.rand_k(1), fedlin.rand_k(True)),
        ArgumentError,
        ("k = True", "whole number"),
    ),
    Case("k a list", lambda: fedlin.top_k([2]), ArgumentError, ("k = [2]", "whole number")),  # type: ignore[arg-type]
    Case("clip", lambda: privacy.gaussian(0.0, 1.0), ArgumentError, ("clip = 0.0", "above 0")),
    Case("noise", lambda: privacy.gaussian(1.0, -1.0), ArgumentError, ("noise = -1.0", "above 0")),
    Case("place of noise", lambda: privacy.gaussian(1.0, 1.0, where="here"), ArgumentError, ("'here'", "'local'")),  # type: ignore[arg-type]
    Case(
        "compressed before the mean is noised",
        lambda: privacy.gaussian(1.0, 1.0, where="central", compressor=fedlin.top_k(1)),
        ArgumentError,
        ("compressor = top_k(1)", "central", "local"),
    ),
    Case(
        "share of how many",
        lambda: privacy.account(fedlin.fedpaq(privacy.gaussian(1.0, 1.0)), 2, delta=1e-5, share=0.5),
        ArgumentError,
        ("share = 0.5", "clients="),
    ),
    Case(
        "delta one",
        lambda: privacy.account(fedlin.fedpaq(privacy.gaussian(1.0, 1.0)), 2, delta=1.0),
        ArgumentError,
        ("delta = 1.0", "(0, 1)"),
    ),
    Case("no epsilon", lambda: privacy.noise_for(0.0, rounds=3, delta=0.1), ArgumentError, ("epsilon = 0.0", "above")),
    Case("levels", lambda: fedlin.quantize(0), ArgumentError, ("levels = 0", "at least 1")),
    Case(
        "no link",
        lambda: fedlin.fedlin(uplink=5),  # type: ignore[arg-type]
        ArgumentError,
        ("uplink = 5", "neither a link nor a compressor", "top_k"),
    ),
    Case(
        "no link but a list",
        lambda: fedlin.fedlin(model_uplink=[5]),  # type: ignore[arg-type]
        ArgumentError,
        ("model_uplink = [5]", "neither a link nor a compressor"),
    ),
    Case(
        "a factory for a link",
        lambda: fedlin.fedlin(downlink=fedlin.top_k),  # type: ignore[arg-type]
        ArgumentError,
        ("downlink", "top_k", "neither a link nor a compressor"),
    ),
    Case("clock that stands", lambda: fedlin.Clock(speed=0.0), ArgumentError, ("speed = 0.0", "above 0")),
    Case("line that loses", lambda: fedlin.Clock(1.0, up=[1.0, -1.0]), ArgumentError, ("up = [1.0, -1.0]", "above 0")),
    Case("line of NaN", lambda: fedlin.Clock(1.0, down=np.nan), ArgumentError, ("down = nan", "above 0")),
    Case("answer before the question", lambda: fedlin.Clock(1.0, latency=-1), ArgumentError, ("latency = -1", "0")),
    Case("speed in words", lambda: fedlin.Clock("fast"), ArgumentError, ("speed = 'fast'", "numbers")),
    Case("speeds of a table", lambda: fedlin.Clock(np.ones((2, 2))), ArgumentError, ("speed", "one for each client")),
    Case("speeds for others", timed(fedlin.Clock([1.0, 2.0])), ArgumentError, ("speed", "(2,)", "3 clients")),
    Case("rates for nobody", lambda: fedlin.draw_rates(0, 1.0), ArgumentError, ("clients = 0", "at least 1")),
    Case("rates of nothing", lambda: fedlin.draw_rates(2, 0.0), ArgumentError, ("rate = 0.0", "above 0")),
    Case(
        "rates of no law",
        lambda: fedlin.draw_rates(2, 1.0, law="uniform"),  # type: ignore[arg-type]
        ArgumentError,
        ("law = 'uniform'", "'lognormal'"),
    ),
    Case("stages without a clock", staged(clock=3), ArgumentError, ("clock = 3", "Clock")),
    Case("stages of too many", staged(first=4), ArgumentError, ("first = 4", "3 clients")),
    Case("stages without end", staged(accuracy=0.0), ArgumentError, ("accuracy = 0.0", "above 0")),
    Case("stages that need everyone", staged(fedlin.scaffnew()), ArgumentError, ("scaffnew", "every client")),
    Case("cast to a wider type", lambda: fedlin.cast("float64"), ArgumentError, ("dtype", "float64", "'float16'")),
    Case("cast of codes", lambda: fedlin.cast("float16", fedlin.sign()), ArgumentError, ("inner = sign()", "top_k(k)")),
    Case("cast of levels", lambda: fedlin.cast("float32", fedlin.quantize(4)), ArgumentError, ("inner", "quantize(4)")),
    Case(
        "cast of an unbiased choice",
        lambda: fedlin.cast("float16", fedlin.rand_k(1, unbiased=True)),
        ArgumentError,
        ("inner", "unbiased=True", "rand_k(k)"),
    ),
    Case("cast of a cast", lambda: fedlin.cast("float16", fedlin.cast("float32")), ArgumentError, ("inner", "cast")),
    Case("cast of a number", lambda: fedlin.cast("float16", 5), ArgumentError, ("inner = 5", "top_k(k)")),  # type: ignore[arg-type]
    Case("link of a number", lambda: fedlin.plain(5), ArgumentError, ("compressor = 5", "top_k")),  # type: ignore[arg-type]
    Case("link of a list", lambda: fedlin.innovation([5]), ArgumentError, ("compressor = [5]", "top_k")),  # type: ignore[arg-type]
    Case("alpha zero", lambda: fedlin.shifted(fedlin.top_k(1), 0.0), ArgumentError, ("alpha = 0.0", "(0, 1]")),
    Case("alpha above one", lambda: fedlin.shifted(fedlin.top_k(1), 1.5), ArgumentError, ("alpha = 1.5", "(0, 1]")),
    # Algorithms
    Case("beta negative", lambda: fedlin.fedprox(-1.0), ArgumentError, ("beta = -1.0", "at least 0")),
    Case("beta words", lambda: fedlin.fedprox("a"), ArgumentError, ("beta = 'a'", "at least 0")),  # type: ignore[arg-type]
    Case("option", lambda: fedlin.scaffold(option=3), ArgumentError, ("option = 3", "1, 2")),
    Case("server step", lambda: fedlin.scaffold(server_step=0.0), ArgumentError, ("server_step = 0.0", "above 0")),
    Case("start", lambda: fedlin.fedsplit(steps=1, start="z"), ArgumentError, ("start = 'z'", "'u', 'model'")),
    Case("inner steps", lambda: fedlin.fedsplit(steps=0), ArgumentError, ("steps = 0", "at least 1")),
    Case(
        "inner steps a float after the same int",
        lambda: (fedlin.fedsplit(steps=2), fedlin.fedsplit(steps=2.0)),  # type: ignore[arg-type]
        ArgumentError,
        ("steps = 2.0", "whole number"),
    ),
    Case(
        "a biased compressor to track with",
        lambda: fedlin.fedcomgate(fedlin.top_k(2)),
        ArgumentError,
        ("compressor = top_k(2)", "biased", "FedCOMGATE", "natural()"),
    ),
    Case(
        "no compressor to track with",
        lambda: fedlin.fedcomgate(4),  # type: ignore[arg-type]
        ArgumentError,
        ("compressor = 4", "quantize"),
    ),
    Case("tracking's step", lambda: fedlin.gradient_tracking(0.0), ArgumentError, ("server_step = 0.0", "above 0")),
    Case("renewal never", lambda: fedlin.s_local_svrg(0.0), ArgumentError, ("renewal = 0.0", "(0, 1]")),
    Case("renewal below never", lambda: fedlin.s_local_svrg(-0.5), ArgumentError, ("renewal = -0.5", "(0, 1]")),
    Case("renewal above one", lambda: fedlin.s_local_svrg(1.5), ArgumentError, ("renewal = 1.5", "(0, 1]")),
    Case("fedac's convexity", lambda: fedlin.fedac(0.0), ArgumentError, ("strong_convexity = 0.0", "above 0")),
    Case(
        "fedac without strong convexity",
        run(fedlin.fedac(), problems.logistic(ROWS, LABELS)),
        ArgumentError,
        ("fedac", "strongly convex", "Logistic", "μ = 0", "strong_convexity="),
    ),
    Case(
        "fedac with unequal tau",
        run(fedlin.fedac(), plan=Plan([1, 2, 3], 0.1)),
        PlanError,
        ("fedac", "one number of local steps", "1", "3", "tau="),
    ),
    Case(
        "fednova with unequal eta",
        run(fedlin.fednova(), plan=Plan(2, [0.1, 0.2, 0.3])),
        PlanError,
        ("fednova", "one step size", "0.1", "0.3", "eta="),
    ),
    Case(
        "exact prox of any loss",
        run(fedlin.fedsplit(), CUSTOM),
        ArgumentError,
        ("fedsplit", "proximal", "Custom", "steps="),
    ),
    Case(
        "inner steps of unknown smoothness",
        run(fedlin.fedsplit(steps=2), CUSTOM),
        UnknownError,
        ("smoothness", "Custom", "smoothness="),
    ),
    Case(
        "compressed models to some of the clients",
        run(fedlin.fedlin(model_downlink=fedlin.top_k(1)), participation=0.5),
        ArgumentError,
        ("model_downlink", "every client", "participation=1.0"),
    ),
    Case(
        "shared coins with some of the clients",
        run(fedlin.scaffnew(), participation=0.5),
        ArgumentError,
        ("scaffnew", "every client", "participation=1.0", "fedlin.scaffold()"),
    ),
    Case(
        "tracking downlink to some of the clients",
        run(fedlin.fedlin(downlink=fedlin.innovation(fedlin.top_k(1))), participation=np.eye(M)),
        ArgumentError,
        ("downlink", "every client", "participation=1.0"),
    ),
    # Quadratics
    Case(
        "A not symmetric",
        lambda: problems.quadratic(A + np.triu(np.ones((D, D)), 1), B),
        DataError,
        ("A of client 0", "symmetric", "(A + Aᵀ)/2"),
    ),
    Case(
        "A indefinite",
        lambda: problems.quadratic(with_entry(A, -2.0), B),
        DataError,
        ("A of client 2", "-2", "positive semidefinite"),
    ),
    Case("A not square", lambda: problems.quadratic(A[:, :1], B), DataError, ("A", "(3, 1, 2)", "(clients, d, d)")),
    Case("A without clients", lambda: problems.quadratic(A[0], B), DataError, ("A", "(2, 2)", "(clients, d, d)")),
    Case("A of nobody", lambda: problems.quadratic(A[:0], B[:0]), DataError, ("A", "(0, 2, 2)", "(clients, d, d)")),
    Case("b of other shape", lambda: problems.quadratic(A, B[:, :1]), DataError, ("b", "(3, 1)", "(3, 2)")),
    Case("b of fewer clients", lambda: problems.quadratic(A, B[:2]), DataError, ("b", "(2, 2)", "(3, 2)")),
    Case("A with NaN", lambda: problems.quadratic(with_entry(A, np.nan), B), DataError, ("A", "NaN", "(2, 1, 1)")),
    Case("b infinite", lambda: problems.quadratic(A, with_entry(B, np.inf)), DataError, ("b", "infinite", "(2, 1)")),
    Case("A ragged", lambda: problems.quadratic([A[0], A[0, :1]], B), DataError, ("A", "array of numbers")),
    # Rows
    Case("labels 0/1", lambda: problems.logistic(ROWS, LABELS > 0), DataError, ("y of client 0", "holds 0", "2*y - 1")),
    Case(
        "labels of classes",
        lambda: problems.softmax(ROWS, LABELS),
        DataError,
        ("y", "from -1 to 1", "0..K-1"),
    ),
    Case(
        "classes not whole",
        lambda: problems.softmax(ROWS, LABELS > 0, classes=2.5),  # type: ignore[arg-type]
        ArgumentError,
        ("classes = 2.5", "whole number"),
    ),
    Case(
        "rows with NaN",
        lambda: problems.logistic(with_entry(ROWS, np.nan), LABELS),
        DataError,
        ("X of client 2", "NaN", "(3, 1)", "impute"),
    ),
    Case(
        "rows infinite",
        lambda: problems.regression(with_entry(ROWS, -np.inf), LABELS),
        DataError,
        ("X of client 2", "infinite", "(3, 1)"),
    ),
    Case(
        "targets with NaN",
        lambda: problems.regression(ROWS, with_entry(LABELS, np.nan)),
        DataError,
        ("y of client 2", "NaN", "(3,)"),
    ),
    Case(
        "empty client",
        lambda: problems.logistic([ROWS[0], ROWS[1, :0]], [LABELS[0], LABELS[1, :0]]),
        DataError,
        ("client 1", "no rows", "leave it out"),
    ),
    Case("no clients", lambda: problems.logistic([], []), DataError, ("X", "no clients", "at least one")),
    Case(
        "clients of different dimension",
        lambda: problems.logistic([ROWS[0], ROWS[1, :, :1]], [LABELS[0], LABELS[1]]),
        DataError,
        ("client 1", "1 features", "client 0 has 2", "one feature space"),
    ),
    Case(
        "labels of other length",
        lambda: problems.regression(ROWS, LABELS[:, :3]),
        DataError,
        ("y of client 0", "(3,)", "4 rows"),
    ),
    Case("labels of fewer clients", lambda: problems.softmax(ROWS, LABELS[:2]), DataError, ("X has 3", "y has 2")),
    Case("rows without clients", lambda: problems.logistic(ROWS[0], LABELS), DataError, ("X", "4", "client")),
    Case("labels without clients", lambda: problems.logistic(ROWS, LABELS[0, :3]), DataError, ("y", "array", "client")),
    Case("rows a number", lambda: problems.regression(5, 5), DataError, ("X = 5", "client")),
    Case(
        "reduction",
        lambda: problems.logistic(ROWS, LABELS, reduction="max"),
        ArgumentError,
        ("reduction = 'max'", "'mean', 'sum'"),
    ),
    Case("l2", lambda: problems.logistic(ROWS, LABELS, l2=-1.0), ArgumentError, ("l2 = -1.0", "at least 0")),
    Case(
        "nonconvex",
        lambda: problems.logistic(ROWS, LABELS, nonconvex=np.nan),
        ArgumentError,
        ("nonconvex = nan", "at least 0"),
    ),
    Case("samples", lambda: problems.least_squares(samples=0), ArgumentError, ("samples = 0", "at least 1")),
    Case("alpha", lambda: problems.least_squares(alpha=-1.0), ArgumentError, ("alpha = -1.0", "at least 0")),
    # Any loss
    Case(
        "whole parameters",
        lambda: problems.from_loss(mean_square, np.zeros(D, int), ROWS),
        DataError,
        ("params", "int64", "floats"),
    ),
    Case(
        "no parameters", lambda: problems.from_loss(mean_square, {}, ROWS), DataError, ("params", "nothing", "floats")
    ),
    Case(
        "parameters with NaN",
        lambda: problems.from_loss(mean_square, np.array([0.0, np.nan]), ROWS),
        DataError,
        ("params", "NaN", "(1,)"),
    ),
    Case(
        "ragged loss that is a sum",
        lambda: problems.from_loss(sum_square, np.zeros(D), [ROWS[0], ROWS[1, :3]]),
        DataError,
        ("loss of client 0", "mean over rows", "equal length"),
    ),
    Case(
        "loss with NaN data",
        lambda: problems.from_loss(mean_square, np.zeros(D), {"x": with_entry(ROWS, np.nan)}),
        DataError,
        ("data['x']", "NaN", "impute"),
    ),
    Case(
        "loss with an empty client",
        lambda: problems.from_loss(mean_square, np.zeros(D), [ROWS[0], ROWS[1, :0]]),
        DataError,
        ("client 1", "no rows", "leave it out"),
    ),
    Case(
        "loss with clients of different dimension",
        lambda: problems.from_loss(mean_square, np.zeros(D), [ROWS[0], ROWS[1, :, :1]]),
        DataError,
        ("clients differ", "shape of a row", "share one"),
    ),
    Case(
        "loss with clients of different structure",
        lambda: problems.from_loss(mean_square, np.zeros(D), [{"x": ROWS[0]}, {"y": ROWS[0]}]),
        DataError,
        ("clients differ", "structure", "same arrays"),
    ),
    Case(
        "arrays of no client",
        lambda: problems.from_loss(mean_square, np.zeros(D), ROWS[:0]),
        DataError,
        ("(0,)", "at least one client"),
    ),
    Case(
        "loss with unequal client axes",
        lambda: problems.from_loss(mean_square, np.zeros(D), {"x": ROWS, "y": LABELS[:2]}),
        DataError,
        ("data", "(2,)", "(3,)", "one client axis"),
    ),
    Case(
        "loss without clients", lambda: problems.from_loss(mean_square, np.zeros(D), []), DataError, ("data", "client")
    ),
    Case(
        "smoothness of a loss",
        lambda: problems.from_loss(mean_square, np.zeros(D), ROWS, smoothness=0.0),
        ArgumentError,
        ("smoothness = 0.0", "above 0"),
    ),
    Case(
        "strong convexity of a loss",
        lambda: problems.from_loss(mean_square, np.zeros(D), ROWS, smoothness=1.0, strong_convexity=-1.0),
        ArgumentError,
        ("strong_convexity = -1.0", "at least 0"),
    ),
    Case(
        "strong convexity alone",
        lambda: problems.from_loss(mean_square, np.zeros(D), ROWS, strong_convexity=0.5),
        ArgumentError,
        ("strong_convexity = 0.5", "smoothness = None", "give both"),
    ),
    Case(
        "strong convexity above smoothness",
        lambda: problems.from_loss(mean_square, np.zeros(D), ROWS, smoothness=1.0, strong_convexity=2.0),
        ArgumentError,
        ("strong_convexity = 2.0", "smoothness = 1.0", "μ at most L"),
    ),
    Case(
        "minimiser of a loss",
        lambda: problems.from_loss(mean_square, np.zeros(D), ROWS, minimizer=np.zeros(3)),
        ArgumentError,
        ("minimizer", "(3,)", "(2,)"),
    ),
    # Noise
    Case("variance", lambda: problems.noisy(QUADRATIC, -0.1), ArgumentError, ("variance = -0.1", "at least 0")),
    Case("batch of none", lambda: problems.minibatch(LOGISTIC, 0), ArgumentError, ("size = 0", "at least 1")),
    Case("batch without rows", lambda: problems.minibatch(QUADRATIC, 2), UnknownError, ("Quadratic", "rows", "noisy")),
    Case(
        "noise twice",
        lambda: problems.noisy(problems.noisy(QUADRATIC, 0.1), 0.1),
        ArgumentError,
        ("Quadratic", "noisy oracle already", "exact problem"),
    ),
    # Evaluation
    Case("point of other size", lambda: QUADRATIC.loss([1.0]), ArgumentError, ("x", "(1,)", "(2,)")),
    Case("point with NaN", lambda: QUADRATIC.grad([1.0, np.nan]), ArgumentError, ("x", "NaN")),
    # Runs
    Case("x0 of other size", run(x0=np.zeros(3)), ArgumentError, ("x0", "(3,)", "(2,)")),
    Case("x0 a column", run(x0=np.zeros((2, 1))), ArgumentError, ("x0", "(2, 1)", "(2,)")),
    Case("x0 with NaN", run(x0=[0.0, np.nan]), ArgumentError, ("x0", "NaN", "(1,)")),
    Case("x0 words", run(x0="zero"), ArgumentError, ("x0", "zero", "numbers")),
    Case("weights negative", run(weights=[1, -1, 1]), ArgumentError, ("weights", "-1.0", "negative")),
    Case("weights all zero", run(weights=[0, 0, 0]), ArgumentError, ("weights", "[0.0, 0.0, 0.0]", "above 0")),
    Case("weights too few", run(weights=[1, 1]), ArgumentError, ("weights", "(2,)", "3 clients")),
    Case("weights NaN", run(weights=[1, 1, np.nan]), ArgumentError, ("weights", "NaN")),
    Case(
        "a cohort without weight",
        run(weights=[1, 0, 0], participation=0.4),
        ArgumentError,
        ("weights", "zero for 2 clients", "draws 1", "raise participation"),
    ),
    Case(
        "a round without weight",
        run(weights=[1, 1, 0], participation=np.eye(M)),
        ArgumentError,
        ("participation", "round 2", "zero weights"),
    ),
    Case("measured less than never", run(measure_every=-1), ArgumentError, ("measure_every = -1", "at least 0")),
    Case("an empty chunk", run(chunk=0), ArgumentError, ("chunk = 0", "at least 1")),
    Case("chunks on devices", run(chunk=2, devices=2), ArgumentError, ("chunk = 2", "devices = 2", "leave one out")),
    Case("half a chunk", run(chunk=2.5), ArgumentError, ("chunk = 2.5", "whole number")),
    Case("participation zero", run(participation=0), ArgumentError, ("participation = 0", "(0, 1]")),
    Case("participation above one", run(participation=1.5), ArgumentError, ("participation = 1.5", "(0, 1]")),
    Case("participation NaN", run(participation=np.nan), ArgumentError, ("participation = nan", "(0, 1]")),
    Case(
        "participation of two", run(participation=np.ones((3, 2))), ArgumentError, ("participation", "(3, 2)", "(3, 3)")
    ),
    Case("participation of few rounds", run(participation=np.ones((2, 3))), ArgumentError, ("participation", "(2, 3)")),
    Case("participation a row", run(participation=[1, 1, 0]), ArgumentError, ("participation", "(3,)", "(3, 3)")),
    Case(
        "a round with nobody",
        run(participation=[[1, 0, 0], [0, 0, 0], [1, 1, 1]]),
        ArgumentError,
        ("participation", "round 1", "no client"),
    ),
    Case("no rounds", run(rounds=0), ArgumentError, ("rounds = 0", "at least 1")),
    Case("rounds a fraction", run(rounds=2.5), ArgumentError, ("rounds = 2.5", "whole number")),
    Case("devices", run(devices=0), ArgumentError, ("devices = 0", "how many")),
    Case("devices of another kind", run(devices="gpu"), ArgumentError, ("devices = 'gpu'", "JAX devices")),
    Case("more devices than there are", run(devices=999), ArgumentError, ("devices = 999", "JAX_NUM_CPU_DEVICES")),
    Case("layout", run(layout="row"), ArgumentError, ("layout = 'row'", "'auto', 'client', 'step'")),
    Case("seed words", run(seed="a"), ArgumentError, ("seed = 'a'", "whole number")),
    Case("seed a truth", run(seed=True), ArgumentError, ("seed = True", "whole number")),
    Case("seed too large", run(seed=2**70), ArgumentError, ("seed = 1180591620717411303424", "2³²")),
    Case("seed negative", run(seed=-1), ArgumentError, ("seed = -1", "whole number")),
    Case("callbacks a function", run(callbacks=print), ArgumentError, ("callbacks", "print", "list")),
    Case("callbacks of numbers", run(callbacks=[3]), ArgumentError, ("callbacks", "3", "functions")),
    Case("checkpoint a number", run(checkpoint=3), ArgumentError, ("checkpoint = 3", "path")),
    Case(
        "checkpoint nowhere",
        run(checkpoint=Path("no") / "such" / "folder"),
        CheckpointError,
        ("checkpoint", "no/such/folder", "exists"),
    ),
    Case(
        "checkpoint every none",
        lambda: fedlin.Checkpoint("run.ckpt", every=0),
        ArgumentError,
        ("checkpoint.every = 0", "at least 1"),
    ),
    Case("stop at zero", lambda: Stop(gap=0.0), ArgumentError, ("stop.gap = 0.0", "above 0")),
    Case("stop at NaN", lambda: Stop(loss=np.nan), ArgumentError, ("stop.loss = nan", "finite")),
    Case("stop at words", lambda: Stop(grad_norm="a"), ArgumentError, ("stop.grad_norm = 'a'", "above 0")),  # type: ignore[arg-type]
    Case(
        "stop by gap without minimiser",
        run(problem=CUSTOM, stop=Stop(gap=1e-3)),
        UnknownError,
        ("Custom", "gap", "Stop(grad_norm=...)"),
    ),
    Case(
        "stop by distance without minimiser",
        run(problem=CUSTOM, stop=Stop(distance=1e-3)),
        UnknownError,
        ("Custom", "distance", "Stop(grad_norm=...)"),
    ),
    Case("server state without a model", run(NAMELESS), ArgumentError, ("algorithm = nameless", "field x")),
    Case("algorithm a name", run("fedavg"), ArgumentError, ("algorithm = 'fedavg'", "Algorithm")),
    Case("algorithm a factory", run(fedlin.fedavg), ArgumentError, ("algorithm", "fedavg", "Algorithm")),
    Case("problem an array", run(problem=3.5), ArgumentError, ("problem = 3.5", "Problem")),
    Case("plan a number", run(plan=0.1), ArgumentError, ("plan = 0.1", "Plan")),
    Case("stop a number", run(stop=1e-3), ArgumentError, ("stop = 0.001", "Stop")),
    # Many runs
    Case(
        "lists of different length",
        lambda: simulate_many(fedlin.fedlin(), QUADRATIC, [PLAN] * 2, 3, seeds=[1, 2, 3]),
        ArgumentError,
        ("2 plans", "3 seeds", "one for each"),
    ),
    Case(
        "an empty list",
        lambda: simulate_many(fedlin.fedlin(), QUADRATIC, [], 3),
        ArgumentError,
        ("0 plans", "one for each"),
    ),
    Case(
        "a list with a stranger",
        lambda: simulate_many([fedlin.fedlin(), "fedavg"], QUADRATIC, PLAN, 3),  # type: ignore[list-item]
        ArgumentError,
        ("algorithm = 'fedavg'", "Algorithm"),
    ),
    Case(
        "layout of many",
        lambda: simulate_many(fedlin.fedlin(), QUADRATIC, PLAN, 3, layout="row"),
        ArgumentError,
        ("layout = 'row'", "'step'"),
    ),
    # Data
    Case("more clients than rows", lambda: data.iid(3, 4), DataError, ("4 clients", "3 rows", "at least one")),
    Case("rows of nobody", lambda: data.quantity(9, 0, 1.0), ArgumentError, ("clients = 0", "at least 1")),
    Case("rows none", lambda: data.iid(0, 1), ArgumentError, ("n = 0", "at least 1")),
    Case("labels a number", lambda: data.dirichlet(9, 2, 1.0), DataError, ("y", "()", "(n,)")),
    Case("labels a table", lambda: data.shards(LABELS, 2, 1), DataError, ("y", "(3, 4)", "(n,)")),
    Case("alpha of shares", lambda: data.dirichlet([0, 1], 2, 0.0), ArgumentError, ("alpha = 0.0", "above 0")),
    Case("alpha of sizes", lambda: data.quantity(9, 2, np.nan), ArgumentError, ("alpha = nan", "above 0")),
    Case("shards of nothing", lambda: data.shards([0, 1], 1, 0), ArgumentError, ("labels = 0", "at least 1")),
    Case("too many shards", lambda: data.shards([0, 1, 1], 2, 2), DataError, ("at least 4 rows", "3", "fewer")),
    Case("seed of rows", lambda: data.iid(4, 2, seed=-1), ArgumentError, ("seed = -1", "whole number")),
    Case("column of nobody", lambda: data.by_column(None), DataError, ("names is None", "iid")),
    Case("column of columns", lambda: data.by_column(LABELS), DataError, ("names", "(3, 4)", "(n,)")),
    Case("client without rows", lambda: data.Partition([[0], []]), DataError, ("client 1", "no rows", "leave it out")),
    Case("partition of nobody", lambda: data.Partition([]), DataError, ("no clients", "at least one")),
    Case("row dealt twice", lambda: data.Partition([[0, 1], [1, 2]]), DataError, ("at 2 comes 1", "exactly one")),
    Case("row left over", lambda: data.Partition([[0], [2]]), DataError, ("at 1 comes 2", "exactly one")),
    Case("names too few", lambda: data.Partition([[0], [1]], ["a"]), DataError, ("1 entries", "2 clients")),
    Case("names alike", lambda: data.Partition([[0], [1]], ["a", "a"]), DataError, ("'a'", "name of its own")),
    Case("rows of others", lambda: data.iid(4, 2).take(np.ones((5, 1)), np.ones(4)), DataError, ("(5, 1)", "4 rows")),
    Case("labels of others", lambda: data.iid(4, 2).table(np.ones(3)), DataError, ("y", "(3,)", "4 rows")),
    Case("three labels", lambda: data.signs([0, 1, 2]), DataError, ("3 different labels", "0, 1, 2", "softmax")),
    Case("one label", lambda: data.signs(["yes"]), DataError, ("1 different labels", "yes", "exactly 2")),
    Case("labels a square", lambda: data.signs(LABELS), DataError, ("y", "(3, 4)", "(n,)")),
    Case("positive", lambda: data.signs([0, 1], positive=2), DataError, ("positive = 2", "[0, 1]", "choose")),
    Case("heterogeneity", lambda: data.heterogeneity(3), ArgumentError, ("problem = 3", "Problem")),  # type: ignore[arg-type]
    Case("data set", lambda: data.fetch("a9"), ArgumentError, ("name = 'a9'", "a9a, mnist", "did you mean 'a9a'")),
    Case("path a number", lambda: data.read(3), ArgumentError, ("path = 3", "folder", "glob")),  # type: ignore[arg-type]
    Case("path empty", lambda: data.read([]), ArgumentError, ("path = []", "folder", "glob")),
    Case("path nowhere", lambda: data.read("no/such/file.csv"), DataError, ("no/such/file.csv", "neither")),
    # Trackers
    Case("folder a number", lambda: trackers.tensorboard(3), ArgumentError, ("folder = 3", "path")),  # type: ignore[arg-type]
    Case("experiment empty", lambda: trackers.mlflow(""), ArgumentError, ("experiment = ''", "name")),
    # Theory
    Case(
        "delta, server", lambda: theory.server_sparse(QUADRATIC, 1, 0.5), ArgumentError, ("delta = 0.5", "at least 1")
    ),
    Case(
        "delta, both", lambda: theory.server_feedback(QUADRATIC, 1, 0.9), ArgumentError, ("delta = 0.9", "at least 1")
    ),
    Case("delta, client", lambda: theory.client_feedback(QUADRATIC, 1, 0), ArgumentError, ("delta = 0", "at least 1")),
    Case("C", lambda: theory.client_feedback(QUADRATIC, 1, 2, C=-1.0), ArgumentError, ("C = -1.0", "above 0")),
    Case("C too small", lambda: theory.dissimilarity(QUADRATIC, 1.0), ArgumentError, ("C = 1.0", "above", "least")),
    Case("C at the least", lambda: theory.dissimilarity(ONES, 1.0), ArgumentError, ("C = 1.0", "above 1,", "least")),
    Case("dissimilarity", lambda: theory.dissimilarity(LOGISTIC), UnknownError, ("quadratics only", "Logistic")),
    Case(
        "dissimilarity of a singular problem",
        lambda: theory.dissimilarity(problems.quadratic(np.zeros((2, 1, 1)), np.zeros((2, 1)))),
        UnknownError,
        ("Quadratic", "singular"),
    ),
    Case("eta_bar of noise", lambda: theory.noisy(QUADRATIC, 1, 0.5), ArgumentError, ("eta_bar = 0.5", "1/(12L)")),
    Case("no eta_bar of noise", lambda: theory.noisy(QUADRATIC, 1, 0.0), ArgumentError, ("eta_bar = 0.0", "1/(12L)")),
    Case("eta_bar below 0", lambda: theory.noisy(QUADRATIC, 1, -0.1), ArgumentError, ("eta_bar = -0.1", "1/(12L)")),
    Case("eta_bar at its limit", lambda: theory.noisy(QUADRATIC, 1, 1.01 / 36), ArgumentError, ("eta_bar", "1/(12L)")),
    Case("decay for two", lambda: theory.noisy_decaying(QUADRATIC, [2, 2], 5), PlanError, ("tau", "2", "array of 3")),
    Case("decay for no rounds", lambda: theory.noisy_decaying(QUADRATIC, [1], 0), ArgumentError, ("rounds = 0",)),
    Case(
        "a floor without strong convexity",
        lambda: theory.bounds.noisy(problems.logistic(ROWS, LABELS), 2, 1.0, 0.01, 0.1),
        UnknownError,
        ("Logistic", "not strongly convex", "κ"),
    ),
    Case(
        "clients' feedback without strong convexity",
        lambda: theory.bounds.client_feedback(problems.logistic(ROWS, LABELS), 2, 1.0, 1e-3, 4.0, 1.0, 0.1),
        UnknownError,
        ("Logistic", "not strongly convex", "κ"),
    ),
    Case(
        "fedsplit's step",
        lambda: theory.fedsplit(problems.logistic(ROWS, LABELS)),
        PlanError,
        ("Logistic", "not strongly convex", "Plan(tau=1, eta=s)"),
    ),
    Case("fedpaq's tau", lambda: theory.fedpaq(QUADRATIC, 0, 5, 0.1), PlanError, ("tau holds 0", "at least 1")),
    Case(
        "fedpaq's uneven tau",
        lambda: theory.fedpaq(QUADRATIC, [1, 2, 2], 5, 0.1),
        PlanError,
        ("tau", "1 to 2", "one number"),
    ),
    Case("fedpaq's rounds", lambda: theory.fedpaq(QUADRATIC, 2, 0, 0.1), ArgumentError, ("rounds = 0", "at least 1")),
    Case("omega", lambda: theory.fedcomgate(QUADRATIC, 2, -1.0), ArgumentError, ("omega = -1.0", "at least 0")),
    Case(
        "row smoothness", lambda: theory.s_local_svrg(QUADRATIC, 2, 0), ArgumentError, ("row_smoothness = 0", "above 0")
    ),
    # Numbers beyond what can be counted or held
    Case("rounds beyond counting", run(rounds=2**31), ArgumentError, ("rounds = 2147483648", "at most 2147483647")),
    Case(
        "clients beyond memory",
        lambda: problems.least_squares(clients=10**8, dim=20),
        DataError,
        ("100000000 clients", "GiB", "fewer"),
    ),
    Case("steps beyond memory", lambda: fedlin.draw_steps(10**6, 1, 2, rounds=10**6), DataError, ("GiB", "fewer")),
    Case(
        "features that overflow",
        lambda: problems.logistic(1e200 * ROWS, LABELS),
        DataError,
        ("X of client 0", "overflow in float64", "standard deviation"),
    ),
    Case(
        "targets that overflow",
        lambda: problems.regression(ROWS.astype(np.float32), np.float32(1e30) * LABELS.astype(np.float32)),
        DataError,
        ("y of client 0", "1e+30", "float32"),
    ),
    # Losses of one's own
    Case(
        "a loss that is no number",
        lambda: problems.from_loss(lambda x, batch: batch * x[None], np.zeros(D), ROWS),
        DataError,
        ("the loss of a batch is", f"(4, {D})", "one float"),
    ),
    Case(
        "a loss that cannot be computed",
        lambda: problems.from_loss(lambda x, batch: batch @ x[:1], np.zeros(D), ROWS),
        DataError,
        ("the loss cannot be computed", "TypeError"),
    ),
    Case(
        "data of words",
        lambda: problems.from_loss(mean_square, np.zeros(D), np.full((M, 4, D), "a")),
        DataError,
        ("data holds <U1", "numbers"),
    ),
    Case(
        "clients of missing names",
        lambda: data.by_column(np.array(["a", None])),
        DataError,
        ("row 1 has no client", "fill in"),
    ),
    Case("clients of NaN", lambda: data.by_column([1.0, np.nan]), DataError, ("row 1 has no client", "leave")),
    # The playground
    Case("playground's method", lambda: Sliders(method="fedlin"), ArgumentError, ("method = 'fedlin'", "'FedLin'")),
    Case("playground's clients", lambda: Sliders(clients=0), ArgumentError, ("clients = 0", "at least 1")),
    Case("playground's alpha", lambda: Sliders(alpha=-1.0), ArgumentError, ("alpha = -1.0", "at least 0")),
    Case("playground's steps", lambda: Sliders(local_steps=0), ArgumentError, ("local_steps = 0", "at least 1")),
    Case("playground's step", lambda: Sliders(step=0.0), ArgumentError, ("step = 0.0", "above 0")),
    Case("playground's share up", lambda: Sliders(up=0), ArgumentError, ("up = 0", "(0, 100]")),
    Case("playground's share down", lambda: Sliders(down=101), ArgumentError, ("down = 101", "(0, 100]")),
    Case("playground's messages", lambda: Sliders(messages="all"), ArgumentError, ("messages = 'all'", "'gradients'")),
    Case("playground's memory", lambda: Sliders(memory=""), ArgumentError, ("memory = ''", "'error feedback'")),
    Case("playground's measure", lambda: Sliders(measure="loss"), ArgumentError, ("measure = 'loss'", "'gap'")),
    Case("playground's axis", lambda: Sliders(axis="time"), ArgumentError, ("axis = 'time'", "'rounds'")),
    Case(
        "no gap to close", lambda: theory.staged.rounds(QUADRATIC, 1.0, 0.0), ArgumentError, ("gap0 = 0.0", "above 0")
    ),
    Case("stages of nobody", lambda: theory.staged.stages(4, first=0), ArgumentError, ("first = 0", "at least 1")),
    # Constants that are not known
    Case("smoothness unknown", lambda: theory.strongly_convex(CUSTOM, 1), UnknownError, ("Custom", "smoothness=")),
]
# To compare a loss with the mean of its rows, it must be computed.
COMPUTES = {"ragged loss that is a sum"}


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module", autouse=True)
def keys() -> None:
    """Making a random key compiles something tiny, once in a process, which says nothing about the checks."""
    fedlin.message_sizes(fedlin.fedlin(), QUADRATIC)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_told_before_anything_is_compiled(case: Case) -> None:
    with compilations() as seen, pytest.raises(FedLinError) as caught:
        case.call()
    assert type(caught.value) is case.error
    told = str(caught.value)
    for words in case.words:
        assert words in told, told
    assert told.endswith(".")
    if case.name not in COMPUTES:
        assert seen == []
