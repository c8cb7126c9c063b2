"""The variant and the step of every entrant on every problem, by one rule that was written before any result.

The step is 2ʲ times the method's unit, which is 1/L for gradient steps, 1/√(Lμ) for proximal ones and what
`theory.fedlin_newton` has for FedLin's with Hessians; FedNL's is 1. j begins at 0 and climbs, first up and then down,
as long as the next is better. Each try is a look at a twelfth of 3000 rounds or 6000 passes over the data, at least
twenty rounds, and with Hessians at forty; where its curve leads after that is `tune.continued`. The better of two steps
reaches more of the gaps 10⁻⁴ and 10⁻⁶, or comes sooner to the last it reaches. Of a method's variants, each at its best
step, the one is taken that sends the fewest bits in all, up and down, to the hardest gap that any of them reaches. Its
step is looked at again, four times as long, and halved as long as that is better, but not with Hessians, whose first
looks are as long as any. On a9a a quarter of each client's rows serves for the looks.

`python -m fedlin.claims.common.tune_entrants` writes what was chosen and all that was tried to `tuned_entrants.json`;
what stands there already is kept, so that a run that was ended goes on, and a new entrant is tuned alone.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from fedlin.cache import keep_compiled
from fedlin.claims.common.entrants import ENTRANTS, Entrant, Variant
from fedlin.claims.common.run_costs import bits_in_all
from fedlin.claims.common.shootout_data import TUNED_ON, Battle
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.experiments.tune import Trial, trial

FILE = Path(__file__).with_name("tuned_entrants.json")
GAPS = (1e-4, 1e-6)
ROUNDS, PASSES, NEWTON = 3000, 6000, 40  # of a whole run, as far as tuning looks ahead
SHARE, LEAST = 12, 20  # a look is one in so many rounds of it, and at least so many rounds
AGAIN = 4  # times as long is the look at what was chosen
LARGEST = 400  # variables up to which methods with Hessians or proximal steps take part: beyond, a round takes minutes
FARTHEST = 6  # the largest |j|


def climb(look: Callable[[int], Trial]) -> dict[int, Trial]:
    """Tries by j: from 0 up while the next is better, and down if the first step up was not.

    >>> tries = climb(lambda j: Trial(2.0**j, "done", (None,), abs(j + 2)))
    >>> sorted(tries), min(tries, key=lambda j: tries[j].rank)
    ([-3, -2, -1, 0, 1], -2)
    """
    tries, best = {0: look(0)}, 0
    for direction in (1, -1):
        while abs(best + direction) <= FARTHEST:
            following = best + direction
            tries[following] = look(following)
            # Where all diverge only a shorter step can be better.
            hopeless = direction < 0 and tries[best].status == "diverged"
            better = tries[following].status != "diverged" and tries[following].rank < tries[best].rank
            if not (hopeless or better):
                break
            best = following
        if best > 0:
            break
    return tries


def tune_entrant(entrant: Entrant, battle: Battle) -> dict[str, Any]:
    """The variant and the step that the rule chooses, with all that was tried."""
    tried = {name: _steps(entrant, variant, battle) for name, variant in entrant.variants(battle.problem).items()}
    best = {name: min(tries.values(), key=lambda one: one.rank) for name, tries in tried.items()}
    hardest = max(sum(place is not None for place in one.reached) for one in best.values())
    variants = entrant.variants(battle.problem)

    def bits(name: str) -> tuple[float, float]:
        rounds = best[name].reached[hardest - 1] if hardest else None
        if rounds is None:
            return inf, best[name].last
        return bits_in_all(variants[name].method, battle.problem, variants[name].participation, rounds), 0.0

    chosen = min(best, key=bits)
    multiple = best[chosen].value
    again = (
        [] if entrant.newton else confirm(lambda value: look(entrant, variants[chosen], battle, value, AGAIN), multiple)
    )
    return {
        "variant": chosen,
        "multiple": min(again, key=lambda one: one.rank).value if again else multiple,
        "tries": {name: _record(tries.values()) for name, tries in tried.items()},
        "again": _record(again),
    }


def _record(tries: Iterable[Trial]) -> dict[str, list[Any]]:
    return {f"{one.value:g}": [one.status, *one.reached] for one in tries}


def confirm(look: Callable[[float], Trial], multiple: float) -> list[Trial]:
    """Longer looks at a step, and at halves of it as long as they are better.

    >>> [one.value for one in confirm(lambda value: Trial(value, "done", (None,), abs(value - 2)), 8.0)]
    [8.0, 4.0, 2.0, 1.0]
    """
    tries = [look(multiple)]
    while True:
        tries.append(look(tries[-1].value / 2))
        if tries[-2].status != "diverged" and tries[-1].rank >= tries[-2].rank:
            return tries
        if tries[-1].value <= 2.0**-FARTHEST:
            return tries


def look(entrant: Entrant, variant: Variant, battle: Battle, multiple: float, times: int = 1) -> Trial:
    """A short run, and where it leads."""
    whole = NEWTON if entrant.newton else min(ROUNDS, PASSES // variant.passes)
    run = simulate(
        variant.method,
        battle.problem,
        entrant.plan(battle.problem, variant, multiple),
        whole if entrant.newton else times * max(LEAST, whole // SHARE),
        x0=battle.start,
        participation=variant.participation,
        stop=Stop(gap=GAPS[-1]),
        iterates=False,
    )
    return trial(multiple, run, "gap", GAPS, whole)


def _steps(entrant: Entrant, variant: Variant, battle: Battle) -> dict[int, Trial]:
    if entrant.fixed:
        return {0: look(entrant, variant, battle, 1.0)}
    return climb(lambda j: look(entrant, variant, battle, 2.0**j))


def takes_part(entrant: Entrant, battle: Battle) -> bool:
    """Whether a method is tried on a problem of this size."""
    return battle.problem.dim <= LARGEST or entrant.work(battle.problem) == 0


def tuned() -> dict[str, dict[str, Any]]:
    """What was chosen, by problem and method."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def main(names: Sequence[str]) -> None:
    """Tune what is not tuned yet on the problems of these names, all unless given."""
    for name in names or tuple(TUNED_ON):
        battle = TUNED_ON[name]()
        if battle is None:
            continue
        for method, entrant in ENTRANTS.items():
            if method in tuned().get(name, {}) or not takes_part(entrant, battle):
                continue
            choice = tune_entrant(entrant, battle)
            known = tuned()  # read again, since another process may tune another problem
            known.setdefault(name, {})[method] = choice
            FILE.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(name, method, choice["variant"], choice["multiple"], flush=True)


if __name__ == "__main__":
    keep_compiled()
    main(sys.argv[1:])
