"""The core at work with its own dependencies alone: a run, an experiment with its report, and the lists."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import fedlin
from fedlin.cli import app

EXPERIMENT = """
rounds = 5
[problem]
kind = "least_squares"
clients = 3
dim = 4
samples = 10
[plan]
tau = 2
eta = 1e-3
[[algorithm]]
name = "fedlin"
[[algorithm]]
name = "fedavg"
"""


def command(*arguments: str) -> None:
    """The `fedlin` command, which must leave with 0."""
    code = app(list(arguments), prog_name="fedlin", standalone_mode=False)
    if code:
        sys.exit(f"fedlin {' '.join(arguments)} left with {code}")


def main(folder: Path) -> None:
    """Raises where anything is missing."""
    problem = fedlin.problems.least_squares(clients=5, dim=10, samples=50, alpha=1.0, seed=0)
    plan = fedlin.theory.strongly_convex(problem, tau=[1, 2, 3, 4, 5])
    result = fedlin.simulate(fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(5))), problem, plan, rounds=20)
    assert result.gap[-1] < result.gap[0]
    assert len(result.to_dataframe()) == 21
    result.plot()
    (folder / "small.toml").write_text(EXPERIMENT, encoding="utf-8")
    command("run", str(folder / "small.toml"), "--out", str(folder / "run"))
    assert (folder / "run" / "report" / "index.html").is_file()
    for listed in ("algorithms", "problems", "compressors"):
        command(listed)


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        main(Path(scratch))
