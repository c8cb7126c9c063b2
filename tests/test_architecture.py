"""The parts of the package: who may import whom, how large a file may grow, what `import fedlin` imports."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedlin

SOURCE = Path(fedlin.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs" / "contributors.md").read_text(encoding="utf-8")


def parts_of_the_map() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files and folders that the map of docs/contributors.md lists above and below its line."""
    (listed,) = re.findall(r"```text\nsrc/fedlin/\n(.*?)```", MAP, flags=re.DOTALL)
    above, below = re.split(r"^  -+ .*-+\n", listed, flags=re.MULTILINE)
    return tuple(re.findall(r"^  (\w+)", above, re.MULTILINE)), tuple(re.findall(r"^  (\w+)", below, re.MULTILINE))


INNER, OUTER = parts_of_the_map()
HEAVY = (
    "pandas",
    "pyarrow",
    "pydantic",
    "matplotlib",
    "plotly",
    "rich",
    "typer",
    "sklearn",
    "torch",
    "tensorboardX",
    "clarabel",
    "mlflow",
    "optax",
    "dp_accounting",
    "marimo",
)
PACKAGES = (fedlin, fedlin.data, fedlin.problems, fedlin.theory, fedlin.algorithms)


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Full names of every module a file imports, wherever in the file."""
    package = ["fedlin", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part(module: str) -> str | None:
    """The file or folder of src/fedlin a module belongs to, if any."""
    parts = module.split(".")
    return parts[1] if parts[0] == "fedlin" and len(parts) > 1 else None


def modules() -> list[ModuleType]:
    """All modules of the core, which import with jax, numpy and scipy alone."""
    names = [name(path)[:-3].replace("/", ".").removesuffix("__init__").removesuffix(".") for path in FILES]
    core = [n for n in names if n.split(".")[0] in {*INNER, "engines", "result"} - {"torch"}]
    return [import_module(f"fedlin.{n}") for n in core]


def test_the_map_lists_every_file_and_folder_once() -> None:
    there = {name(path).split("/")[0].removesuffix(".py") for path in FILES} - {"__init__", "__main__"}
    assert sorted([*INNER, *OUTER]) == sorted(there)
    assert {"core", "problems", "devices", "torch"} <= set(INNER)
    assert {"engines", "result", "cli"} <= set(OUTER)


@pytest.mark.parametrize("path", [p for p in FILES if name(p).split("/")[0].removesuffix(".py") in INNER], ids=name)
def test_nothing_above_the_line_imports_what_is_below(path: Path) -> None:
    reached = {part(module) for module in imported(path)} & set(OUTER)
    assert not reached, f"{name(path)} imports {reached}"
    assert "fedlin" not in imported(path), f"{name(path)} imports the whole package"


@pytest.mark.parametrize("path", [p for p in FILES if name(p).startswith("engines/")], ids=name)
def test_engines_never_import_what_shows_their_results(path: Path) -> None:
    # The interface of a transport is the engines' to know; which transport it is, is not.
    modules = (module for module in imported(path) if not module.startswith("fedlin.transports.transport"))
    assert not {part(module) for module in modules} & {"transports", "report", "cli", "claims", "experiments"}


def test_a_transport_never_sees_an_algorithm() -> None:
    for path in FILES:
        if name(path).startswith("transports/"):
            assert not {part(module) for module in imported(path)} & {"algorithms", "problems", "theory"}, name(path)


def test_names_of_modules_and_classes_occur_once() -> None:
    """So that a name alone says what is meant; a class whose name begins with an underscore is its file's own."""
    modules = Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FILES]
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, times in modules.items() if times > 1] == []
    assert [name for name, times in classes.items() if times > 1 and not name.startswith("_")] == []


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    path = SOURCE / "problems" / "example.py"
    tree = "import fedlin.cli\ndef f():\n    from ..engines import keys\n    from fedlin import report\n"
    original = Path.read_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda self, **kw: tree if self == path else original(self, **kw))
        assert {part(m) for m in imported(path)} >= {"cli", "engines", "report"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_file_outgrows_one_idea(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    assert ast.get_docstring(ast.parse(text)) or not text.strip(), "a module says what it is for"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_file_knows_the_machine_it_was_written_on(path: Path) -> None:
    found = re.findall(
        r"(?<![\w.:/])/(?:home|Users|root|tmp|work|mnt|opt|var|data)/[\w./-]*", path.read_text(encoding="utf-8")
    )
    assert found == []


def test_import_pulls_in_nothing_heavy_and_leaves_precision_alone() -> None:
    code = (
        "import sys, fedlin, jax, jax.numpy as jnp\n"
        "assert not jax.config.jax_enable_x64 and jnp.ones(1).dtype == 'float32'\n"
        "problem = fedlin.problems.least_squares(clients=2, dim=2, samples=3)\n"
        "fedlin.simulate(fedlin.fedavg(), problem, fedlin.Plan(1, 0.01), 1)\n"
        "assert not jax.config.jax_enable_x64 and jnp.ones(1).dtype == 'float32'\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_modules_that_need_more_are_there_when_asked_for() -> None:
    code = "import fedlin; print(fedlin.sklearn.FederatedRidge.__name__, fedlin.trackers.Tracker.__name__)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["FederatedRidge", "Tracker"], done.stderr
    with pytest.raises(AttributeError, match="module 'fedlin' has no attribute 'sklean'"):
        fedlin.sklean  # noqa: B018


@pytest.mark.parametrize("module", PACKAGES, ids=lambda m: m.__name__)
def test_exported_names_exist_are_sorted_and_documented(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        thing = getattr(module, public)
        assert inspect.getdoc(thing), f"{module.__name__}.{public} has no docstring"
        own = inspect.getattr_static(thing, "__doc__", None) if inspect.isclass(thing) else thing.__doc__
        assert own, f"{module.__name__}.{public} has no docstring of its own"


@pytest.mark.parametrize("module", PACKAGES, ids=lambda m: m.__name__)
def test_what_a_package_imports_it_exports(module: ModuleType) -> None:
    """An `__init__` only re-exports: every public name it imports from fedlin is in `__all__`."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedlin")
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }
    assert names == set(module.__all__)
    assert not [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def test_every_public_function_and_class_has_a_docstring() -> None:
    bare = []
    for module in modules():
        for public, thing in vars(module).items():
            if public.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(thing) and not thing.__doc__:
                bare.append(f"{module.__name__}.{public}")
            if inspect.isclass(thing):
                if not thing.__doc__:
                    bare.append(f"{module.__name__}.{public}")
                for member, method in vars(thing).items():
                    public_method = isinstance(method, property) or (
                        inspect.isfunction(method) and method.__name__ != "<lambda>"  # a field's default
                    )
                    inherits = any(hasattr(base, member) for base in thing.__mro__[1:])
                    if public_method and not member.startswith("_") and not inherits and not method.__doc__:
                        bare.append(f"{module.__name__}.{public}.{member}")
    assert bare == []


def test_names_outside_checks_rely_on() -> None:
    expected = {
        "Algorithm", "Checkpoint", "FedLinError", "Phase", "Plan", "Result", "Stop", "error_feedback", "fedavg",
        "fedlin", "fednova", "fedprox", "fedsplit", "gradient_descent", "identity", "innovation", "plain", "problems",
        "quantize", "rand_k", "scaffold", "shifted", "sign", "simulate", "simulate_many", "theory", "top_k",
    }  # fmt: skip
    assert expected <= set(fedlin.__all__)
    assert {"quadratic", "least_squares", "logistic", "from_loss"} <= set(fedlin.problems.__all__)
    for attribute in ("clients", "dim", "smoothness", "strong_convexity", "minimizer", "loss", "grad", "gap"):
        assert hasattr(fedlin.problems.Problem, attribute) or attribute == "clients"
    run = inspect.signature(fedlin.simulate).parameters
    assert list(run)[:4] == ["algorithm", "problem", "plan", "rounds"]
    assert {"seed", "x0", "stop", "participation"} <= set(run)
