"""How the package is built, in numbers: `python tests/tools/structure.py [another checkout]`.

Files and their lines, names that occur twice, how often `Any` stands in for a type, and the walk of one call of
`simulate`: through how many files of the package it goes and how often it changes from one to another.
"""

import ast
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

SHORT = 60  # lines
WALK = """
import os, sys
import fedlin
from fedlin import simulate
problem = fedlin.problems.least_squares(clients=4, dim=3, samples=10, seed=0)
plan = fedlin.Plan(tau=[1, 2, 3, 4], eta=1e-3)
home = os.path.dirname(fedlin.__file__) + os.sep
visited = []
def note(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(home) and (not visited or visited[-1] != file):
        visited.append(file)
method = fedlin.fedlin()
sys.setprofile(note)
simulate(method, problem, plan, 3)
sys.setprofile(None)
print(len(set(visited)), len(visited) - 1)
"""


def walk(checkout: Path) -> tuple[int, int]:
    """Of one call of `simulate` for three rounds: the files it goes through, and the changes of file."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "JAX_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, "-c", WALK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    files, changes = map(int, done.stdout.split())
    return files, changes


def repeated(names: list[str]) -> int:
    """How many names occur more than once."""
    return sum(times > 1 for times in Counter(names).values())


def facts(checkout: Path) -> dict[str, object]:
    """What the page for contributors may be held against."""
    files = sorted((checkout / "src" / "fedlin").rglob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    lines = [text.count("\n") for text in texts]
    modules = [file.stem for file in files if not file.stem.startswith("__")]
    classes = [node.name for text in texts for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    any_tokens = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    in_files, changes = walk(checkout)
    return {
        "files": len(files),
        "lines": sum(lines),
        "lines of a file, median": int(statistics.median(lines)),
        f"files under {SHORT} lines": sum(count < SHORT for count in lines),
        "names of modules that occur twice": repeated(modules),
        "names of classes that occur twice": repeated(classes),
        "`Any`": any_tokens,
        "`Any` in 1,000 lines": round(1000 * any_tokens / sum(lines), 1),
        "files that one call of simulate runs": in_files,
        "changes of file in that call": changes,
    }


if __name__ == "__main__":
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    for name, value in facts(checkout.resolve()).items():
        print(f"{name:40}{value}")
