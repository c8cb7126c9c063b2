"""What ten usual changes take: `python tests/tools/ten_changes.py [another checkout]`.

Each is made in a copy of `src/fedlin` and then used: the files of the package it touches, the lines it adds, and
whether it works. In another checkout the same changes are tried as they are. New code is that of `examples/`, where
there is an example.
"""

import ast
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
Edit = Callable[[Path], None]  # of a copy of src/fedlin
NEW_COLUMN = '    Column("size", "size", "‖x‖", lambda view: jnp.linalg.norm(view.x), stop="at least"),\n'

TWO_PHASES = '''"""Steps along the mean gradient, corrected by each client's own."""

from typing import Any, NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.core import Algorithm, Central, Local, Message, Phase, Vector


class CorrectedServer(NamedTuple):
    """The model, and the mean gradient at it."""

    x: Vector
    g: Vector


class CorrectedClient(NamedTuple):
    """The model of this round and the client's own gradient at it."""

    x: Vector
    grad: Vector


@factory()
def corrected() -> Algorithm[CorrectedServer, CorrectedClient]:
    """x ← x - η_i(∇f_i(x) - ∇f_i(x̄) + g), τ_i times from x̄."""

    def send_gradient(state: CorrectedClient, x: Vector, local: Local) -> tuple[CorrectedClient, Message]:
        grad = local.oracle.grad(x, local.key)
        return CorrectedClient(x, grad), grad

    def keep_mean(state: CorrectedServer, mean: Vector, central: Central) -> CorrectedServer:
        return state._replace(g=mean)

    def move(state: CorrectedClient, g: Vector, local: Local) -> tuple[CorrectedClient, Message]:
        return state, local.descend(state.x, shift=g - state.grad)

    def average(state: CorrectedServer, mean: Vector, central: Central) -> CorrectedServer:
        return state._replace(x=mean)

    return Algorithm(
        "corrected",
        lambda x: CorrectedServer(x, 0 * x),
        lambda x: CorrectedClient(0 * x, 0 * x),
        (
            Phase("gradient", lambda state: state.x, send_gradient, keep_mean),
            Phase("model", lambda state: state.g, move, average),
        ),
    )
'''
PROBLEM = '''"""Robust regression: f_i(x) = (1/n_i) Σ_j √(1 + (aᵀx - b)²) - 1."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedlin.core import Scalar, Vector
from fedlin.problems.custom import from_loss
from fedlin.problems.problem import Problem


def _loss(x: Vector, rows: Any) -> Scalar:
    return jnp.mean(jnp.sqrt(1 + (rows[0] @ x - rows[1]) ** 2) - 1)


def robust(X: Any, y: Any) -> Problem:
    """The pseudo-Huber loss of clients with as many rows each."""
    return from_loss(_loss, np.zeros(np.shape(X)[-1]), list(zip(X, y, strict=True)))
'''
TRANSPORT = '''"""Clients of this process, the last one first."""

from collections.abc import Mapping, Sequence
from typing import Any


class Backwards:
    """Calls every client's handler, in the order of their names from the end."""

    def __init__(self, handlers: Mapping[str, Any]) -> None:
        self.handlers = dict(handlers)

    def clients(self) -> Sequence[str]:
        """Everyone."""
        return list(self.handlers)

    def exchange(
        self, phase: str, payloads: Any, clients: Sequence[str], timeout: float, enough: Any = None
    ) -> Mapping[str, bytes]:
        """The replies."""
        each = payloads if isinstance(payloads, Mapping) else dict.fromkeys(clients, payloads)
        return {name: self.handlers[name](phase, each[name]) for name in sorted(clients, reverse=True)}

    def close(self) -> None:
        """Forget the clients."""
        self.handlers.clear()
'''
CLAIM = '''"""One local step of FedLin is gradient descent."""

import numpy as np

from fedlin import algorithms, simulate
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.plan import Plan
from fedlin.problems.regression import least_squares
from fedlin.report.verdict import Row


@claim(
    "one-step",
    order=999,
    title="One local step is gradient descent",
    section="Beyond the paper",
    statement="With τ = 1 FedLin takes the steps of gradient descent.",
)
def check(setting: Setting) -> Outcome:
    """The largest difference of two models."""
    problem, plan = least_squares(clients=3, dim=4, samples=10), Plan(1, 1e-3)
    runs = [simulate(method, problem, plan, 20) for method in (algorithms.fedlin(), algorithms.gradient_descent())]
    apart = float(np.max(np.abs(runs[0].iterates - runs[1].iterates)))
    return Outcome((Row("largest difference", f"{apart:.1e}", "at most 1e-12", apart <= 1e-12),), {})
'''
SETTING = """
import sys
import numpy as np
import fedlin
problem = fedlin.problems.least_squares(clients=4, dim=6, samples=20, seed=0)
plan = fedlin.Plan.scaled([1, 2, 3, 4], 0.1 / problem.smoothness)
def both(method):
    from fedlin.transports.loopback import Loopback
    simulated = fedlin.simulate(method, problem, plan, 6)
    sites = {f"site-{i}": fedlin.Client(method, problem.client(i)).handle for i in range(4)}
    served = fedlin.serve(method, Loopback(sites), plan, 6, dim=6)
    np.testing.assert_allclose(served.x, simulated.x, rtol=1e-9)
    assert simulated.gap[-1] < simulated.gap[0]
"""


def new_file(path: str, text: str) -> Edit:
    """A file of its own."""

    def edit(package: Path) -> None:
        (package / path).write_text(text, encoding="utf-8")

    return edit


def example(name: str, path: str) -> Edit:
    """What the example defines, as a file of the package."""
    lines = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines(keepends=True)
    (main,) = (node for node in ast.parse("".join(lines)).body if getattr(node, "name", None) == "main")
    text = "".join(lines[: main.lineno - 1]).replace("fedlin.Algorithm", "Algorithm")
    return new_file(path, text.replace("import fedlin\n", "from fedlin.core import Algorithm\n"))


def changed(path: str, before: str, after: str) -> Edit:
    """A passage that is another."""

    def edit(package: Path) -> None:
        text = (package / path).read_text(encoding="utf-8")
        if before not in text:
            raise LookupError(f"{path} has no {before.strip()!r}")
        (package / path).write_text(text.replace(before, after, 1), encoding="utf-8")

    return edit


def either(*edits: Edit) -> Edit:
    """The first of these that can be made: files have other names in other checkouts."""

    def edit(package: Path) -> None:
        for change in edits[:-1]:
            with suppress(LookupError, OSError):
                return change(package)
        return edits[-1](package)

    return edit


def export(package: str, module: str, name: str) -> Edit:
    """A name that a package offers: an import and an entry of its list."""
    importing = changed(f"{package}__init__.py", "\n__all__ = [\n", f'\n__all__ = [\n    "{name}",\n')

    def edit(folder: Path) -> None:
        importing(folder)
        changed(f"{package}__init__.py", "\nfrom fedlin.", f"\nfrom {module} import {name}\nfrom fedlin.")(folder)

    return edit


@dataclass(frozen=True)
class Change:
    """Edits of the package, and a program that uses what they add."""

    name: str
    edits: tuple[Edit, ...]
    use: str


def per_layer() -> str:
    """`layers.py`, as if it were not there."""
    text = (ROOT / "src" / "fedlin" / "layers.py").read_text(encoding="utf-8").replace("per_layer", "by_layer")
    return text.replace("from fedlin.checks import shown\n", "").replace("shown(", "repr(")  # which checkouts may lack


CHANGES = (
    Change(
        "a compressor with a payload of its own",
        (example("new_compressor", "ternary.py"), export("", "fedlin.ternary", "ternary")),
        "both(fedlin.fedlin(uplink=fedlin.shifted(fedlin.ternary(), 0.4)))",
    ),
    Change(
        "a method of two phases",
        (
            new_file("algorithms/corrected.py", TWO_PHASES),
            export("algorithms/", "fedlin.algorithms.corrected", "corrected"),
            export("", "fedlin.algorithms.corrected", "corrected"),
        ),
        "both(fedlin.corrected())",
    ),
    Change(
        "a problem",
        (new_file("problems/robust.py", PROBLEM), export("problems/", "fedlin.problems.robust", "robust")),
        "data = np.random.default_rng(0).normal(size=(4, 9, 3))\n"
        "robust = fedlin.problems.robust(data[..., :2], data[..., 2])\n"
        "run = fedlin.simulate(fedlin.fedlin(), robust, fedlin.Plan(2, 0.1), 20)\nassert run.loss[-1] < run.loss[0]",
    ),
    Change(
        "a link",
        (example("new_link", "ef_bv.py"), export("", "fedlin.ef_bv", "ef_bv")),
        "both(fedlin.fedlin(uplink=fedlin.ef_bv(fedlin.rand_k(3), 0.8, 0.9)))",
    ),
    Change(
        "a transport",
        (new_file("transports/backwards.py", TRANSPORT),),
        "from fedlin.transports.backwards import Backwards\nmethod = fedlin.fedlin()\n"
        "sites = {f'site-{i}': fedlin.Client(method, problem.client(i)).handle for i in range(4)}\n"
        "served = fedlin.serve(method, Backwards(sites), plan, 6, dim=6)\n"
        "np.testing.assert_allclose(served.x, fedlin.simulate(method, problem, plan, 6).x, rtol=1e-9)",
    ),
    Change(
        "a result column",
        (changed("columns.py", '    _spent("bytes_up"', f'{NEW_COLUMN}    _spent("bytes_up"'),),
        "run = fedlin.simulate(fedlin.fedlin(), problem, plan, 6)\n"
        "np.testing.assert_allclose(run.size, np.linalg.norm(run.iterates, axis=1))\n"
        "assert fedlin.simulate(fedlin.fedlin(), problem, plan, 6, stop=fedlin.Stop(size=1e-9)).status == 'stopped'",
    ),
    Change(
        "a claim",
        (new_file("claims/one_step.py", CLAIM),),
        "from fedlin.cli import app\n"
        "app(['reproduce', '--quick', 'one-step', '--out', sys.argv[1]], standalone_mode=False)",
    ),
    Change(
        "a reader of JSON lines",
        (
            changed("data/read.py", '".parquet")', '".parquet", ".jsonl")'),
            either(
                changed("data/raw_table.py", '!= ".parquet":', 'not in (".parquet", ".jsonl"):'),
                changed("data/frames.py", " else pd.read_csv(file)", " else pd.read_json(file, lines=True)"),
            ),
            either(
                changed(
                    "data/raw_table.py",
                    "        frame = pd.read_parquet(file)\n",
                    '        parquet = file.suffix.lower() == ".parquet"\n'
                    "        frame = pd.read_parquet(file) if parquet else pd.read_json(file, lines=True)\n",
                ),
                lambda package: None,
            ),
        ),
        "from pathlib import Path\nfile = Path(sys.argv[1], 'rows.jsonl')\n"
        'file.write_text(\'{"a": 1.5, "label": 1}\\n{"a": 2, "label": 0}\\n\')\n'
        "assert fedlin.data.read(file).X.tolist() == [[1.5], [2.0]]",
    ),
    Change(
        "momentum at the server, for any method",
        (example("new_wrapper", "algorithms/momentum.py"), export("", "fedlin.algorithms.momentum", "momentum")),
        "both(fedlin.momentum(fedlin.fedlin(), 0.5))\nboth(fedlin.momentum(fedlin.scaffold(), 0.5))",
    ),
    Change(
        "compression layer by layer",
        (new_file("by_layer.py", per_layer()), export("", "fedlin.by_layer", "by_layer")),
        "layers = {'a': np.zeros((2, 2)), 'b': np.zeros(2)}\n"
        "both(fedlin.fedlin(uplink=fedlin.innovation(fedlin.by_layer(layers, lambda size: fedlin.top_k(size // 2)))))",
    ),
)


def added_lines(before: Path, after: Path) -> dict[str, int]:
    """The lines that each file of the package has gained, where it has changed."""
    gained = {}
    for file in sorted(after.rglob("*.py")):
        former, path = before / file.relative_to(after), file.relative_to(after).as_posix()
        then = former.read_text(encoding="utf-8").splitlines() if former.exists() else []
        now = file.read_text(encoding="utf-8").splitlines()
        if then != now:
            lines = list(difflib.unified_diff(then, now, n=0, lineterm=""))[2:]
            gained[path] = sum(line.startswith("+") for line in lines)
    return gained


def make(change: Change, package: Path) -> tuple[dict[str, int], str]:
    """The lines a change adds by file, and "works", or why it does not."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src", "fedlin")
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            for edit in change.edits:
                edit(copy)
        except (LookupError, OSError) as cause:
            return added_lines(package, copy), f"cannot be made: {cause}"
        environment = os.environ | {"PYTHONPATH": str(copy.parent), "JAX_NUM_CPU_DEVICES": "1", "FEDLIN_CACHE": ""}
        command = [sys.executable, "-c", SETTING + change.use, folder]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        outcome = "works" if done.returncode == 0 else f"fails: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
        return added_lines(package, copy), outcome


def main() -> None:
    """Print a row for every change."""
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for change in CHANGES:
        gained, outcome = make(change, (checkout / "src" / "fedlin").resolve())
        print(f"{change.name:42}{len(gained):3} files {sum(gained.values()):4} lines  {outcome}", flush=True)


if __name__ == "__main__":
    main()
