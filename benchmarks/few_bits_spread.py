"""FedLin with Newton's steps where curvatures differ: M of the problems that `frontier` compares methods on, and steps.

python -m benchmarks.few_bits_spread     writes benchmarks/results/few_bits_spread.json
"""

import json
from pathlib import Path
from typing import Any

import fedlin
from fedlin.claims.common.run_costs import bits_in_all
from fedlin.claims.common.shootout_data import A9A, BATTLES, SPARSE, STIFF

RESULTS = Path(__file__).parent / "results" / "few_bits_spread.json"
GOAL, MOST, LEVELS = 1e-10, 300, 31  # f - f*, rounds, and levels of six bits


def few_bits() -> fedlin.Algorithm[Any, Any]:
    """Six bits an entry in all four messages."""
    sent = fedlin.nearest(LEVELS)
    links = dict.fromkeys(("downlink", "model_uplink", "model_downlink"), fedlin.plain(sent))
    return fedlin.fedlin_newton(uplink=fedlin.innovation(sent), **links)


def main() -> None:
    """Measure M at the start and at x*, and the rounds to the goal by the step."""
    found = []
    for name in (A9A, STIFF, SPARSE):
        battle = BATTLES[name]()
        assert battle is not None, f"{name} needs its file: set FEDLIN_DATA"
        problem, start = battle
        at = {"start": start, "end": problem.minimizer}
        spreads = {place: fedlin.theory.curvature_spread(problem, x) for place, x in at.items()}
        steps = {place: float(fedlin.theory.fedlin_newton(problem, x=x).eta) for place, x in at.items()}
        steps |= {"twice": 2 * steps["start"]}
        row: dict[str, Any] = {"problem": name, "kappa": problem.condition, "spreads": spreads, "steps": steps}
        for place, step in steps.items():
            plan, until = fedlin.Plan(1, step), fedlin.Stop(gap=GOAL)
            run = fedlin.simulate(few_bits(), problem, plan, MOST, x0=start, stop=until, iterates=False)
            there = run.rounds if run.gap[-1] <= GOAL else None
            bits = None if there is None else bits_in_all(few_bits(), problem, 1.0, there)
            row[place] = {"rounds": there, "bits": bits, "highest": float(max(run.gap / run.gap[0]))}
            print(name, place, step, row[place], flush=True)
        found.append(row)
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
