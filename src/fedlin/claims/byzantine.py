"""False uploads: what robust means cost without attackers, and what they save with one client in five attacking."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedlin import aggregation, algorithms, attacks, problems
from fedlin.aggregation import Aggregator
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.instances import draws
from fedlin.claims.common.method_faults import HALFWAY, SHORTER, any_fault
from fedlin.claims.common.wrong_means import WRONG_MEANS
from fedlin.claims.common.wrong_methods import EXCLUDED
from fedlin.compressors import identity
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan, draw_steps
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

CLIENTS, DIM, ROUNDS = 20, 10, 120
FALSE = 4  # attackers, one client in five
LIARS = range(FALSE)
STEP = 1 / 8  # η̄
LIMIT = 1.0  # of what an honest client alone is from the honest minimiser
SINGLE = 1.5  # the same for Krum, which follows one client at a time: one may be farther from it than they are together
EXACT = 1e-6  # of the same, where FedLin without attackers ends
LATER = "It ends at the same model, in more rounds."

Attack = Callable[[Method], Method]
mixing = aggregation.nearest_neighbour_mixing
DEFENCES: Mapping[str, Aggregator] = {
    "coordinate-wise median": aggregation.coordinate_median(),
    "trimmed mean": aggregation.trimmed_mean(FALSE),
    "geometric median": aggregation.geometric_median(steps=20, smoothing=1e-6),
    "centred clipping": aggregation.centred_clipping(1.0),
    "Krum": aggregation.krum(FALSE),
    "multi-Krum": aggregation.multi_krum(FALSE),
    "mixing, then trimmed mean": mixing(aggregation.trimmed_mean(FALSE), FALSE),
    "buckets of two, then median": aggregation.bucketing(aggregation.coordinate_median(), 2),
}
QUICK = ("trimmed mean", "mixing, then trimmed mean")


class Instance(NamedTuple):
    """A problem, the minimiser of its honest clients, and how far from it they are by themselves."""

    problem: Problem
    honest: Array
    apart: float


def _attacks(method: Method) -> dict[str, list[Attack]]:
    """Every kind, with strengths from hidden to gross, on the uploads of all phases and on those that carry models.

    In both phases of FedLin two lies may cancel: a mean gradient of the wrong sign makes moves of the wrong sign.
    """
    last = method.phases[-1].name
    phases = (None,) if len(method.phases) == 1 else (None, last)

    def each(attack: Callable[..., Method], *strengths: float) -> list[Attack]:
        def of(strength: float, phase: str | None) -> Attack:
            return lambda method: attack(method, LIARS, strength, phase)

        return [of(strength, phase) for strength in strengths for phase in phases]

    return {
        "sign flip": each(attacks.sign_flip, 1.0, 10.0),
        "noise": each(attacks.noise, 3.0, 100.0),
        "a little is enough": each(attacks.a_little_is_enough, 0.5, 1.5, 10.0),
        "inner product": each(attacks.inner_product, 0.5, 2.0, 10.0),
        "wrong labels": [lambda m: attacks.wrong_labels(m, LIARS)],
    }


@claim(
    "byzantine",
    order=565,
    title="False uploads",
    section=OPEN,
    statement="One client in five sends what it likes. With the mean each kind of attack carries FedLin and FedAvg "
    "farther from the honest clients' minimiser than an honest client by itself is from it. With a robust mean both "
    "end nearer than that, whatever the attack and at every strength tried; with Krum, which takes the upload of one "
    "client, within one and a half times of it. Without attackers the mean leads FedLin to the minimiser itself and a "
    "robust mean does not, since it takes clients that differ for false.",
    wrong=any_fault({SHORTER: LATER, HALFWAY: LATER}) | dict.fromkeys(WRONG_MEANS, EXCLUDED),
    by_name=True,
)
def check(setting: Setting) -> Outcome:
    """Distances from the honest minimiser over those of honest clients by themselves, the worst of all strengths."""
    numbers, rounds = draws(setting), setting.rounds or ROUNDS
    family = [_instance(number) for number in numbers]
    methods = {"FedLin": setting.fedlin(), "FedAvg": setting.tested(algorithms.fedpaq(identity()))}
    defences = {name: setting.robust(DEFENCES[name]) for name in setting.pick(tuple(DEFENCES), QUICK)}
    rows, panels, held = [], [], np.ones(len(numbers), bool)
    for name, method in methods.items():
        costs: dict[str, Array] = {}
        curves = []
        for defence, aggregate in {"mean": aggregation.mean(), **defences}.items():
            attacked, ways = _play(method, family, aggregate, rounds)
            costs[defence] = attacked.pop("none")
            worst = np.array(list(attacked.values()))
            words = ", ".join(f"{kind} {_number(np.median(values))}" for kind, values in attacked.items())
            what = f"{name}, {defence}: with attackers, over an honest client's own distance"
            limit = SINGLE if defence == "Krum" else LIMIT
            survives = np.all(worst <= limit, axis=0) if defence != "mean" else np.all(worst > limit, axis=0)
            held &= survives
            expected = f"{'each above' if defence == 'mean' else 'at most'} {limit:g} on every draw"
            rows.append(Row(what, words, expected, bool(survives.all())))
            curves.append(Curve(defence, np.arange(rounds + 1.0), ways))
        exact = costs["mean"] <= EXACT
        if name == "FedLin":
            held &= exact
            rows.append(
                Row(
                    f"{name}, mean: without attackers",
                    f"{_number(costs['mean'].max())} (largest)",
                    f"at most {EXACT:g}",
                    bool(exact.all()),
                )
            )
            robust = np.min([costs[defence] for defence in defences], axis=0)
            held &= robust > EXACT
            rows.append(
                Row(
                    f"{name}, the best robust mean: without attackers",
                    f"{_number(robust.min())} (least)",
                    f"above {EXACT:g}",
                    bool(np.all(robust > EXACT)),
                )
            )
        clean = ", ".join(f"{defence} {_number(np.median(values))}" for defence, values in costs.items())
        rows.append(Row(f"{name}: without attackers, over an honest client's own distance", clean))
        panels.append(Panel(name, "rounds", "distance from the honest minimiser", tuple(curves)))
    return Outcome(
        tuple(rows),
        {
            "clients": f"{CLIENTS}, of which {FALSE} attack",
            "d": str(DIM),
            "τ_i": "2 to 10",
            "η̄": f"{STEP:g}",
            "rounds": str(rounds),
            "numbers": "medians over the draws of the worst of all strengths",
            "strengths": "sign flip 1 and 10, noise 3 and 100, a little 0.5, 1.5 and 10 deviations, inner product 0.5, "
            "2 and 10, each on all uploads and on those that carry models",
        },
        held=int(held.sum()),
        draws=len(numbers),
        figures=(
            Figure(
                "byzantine",
                "One client in five with wrong labels",
                tuple(panels),
                "The first draw; distances are divided by that of an honest client by itself.",
            ),
        ),
    )


def _instance(number: int) -> Instance:
    """Quadratics whose curvature and centre go together; the centres differ, and lie together far from 0."""
    source = np.random.default_rng(number)
    curvature = source.uniform(1, 4, (CLIENTS, DIM))
    centre = 3 + 0.5 * (curvature - 2.5) + source.standard_normal((CLIENTS, DIM))
    honest = (curvature * centre)[FALSE:].mean(axis=0) / curvature[FALSE:].mean(axis=0)
    apart = float(np.sqrt(np.mean(np.sum((centre[FALSE:] - honest) ** 2, axis=1))))
    return Instance(problems.quadratic(curvature[:, :, None] * np.eye(DIM), curvature * centre), honest, apart)


def _play(method: Method, family: list[Instance], aggregate: Aggregator, rounds: int) -> tuple[dict[str, Array], Array]:
    """For each kind of attack the worst distance of every draw, without attackers too; and one run's, by round."""
    kinds: dict[str, list[Attack]] = {"none": [lambda m: m], **_attacks(method)}
    runs = [(kind, attack(method), one) for kind, many in kinds.items() for attack in many for one in family]
    plan = Plan.scaled(draw_steps(CLIENTS, 2, 10), STEP)
    results = simulate_many(
        [attacked for _, attacked, _ in runs],
        [one.problem for *_, one in runs],
        plan,
        rounds,
        seeds=list(range(len(runs))),
        aggregate=aggregate,
        measure_every=0,
    )
    far: dict[str, list[float]] = {kind: [] for kind in kinds}
    ways = np.zeros(rounds + 1)
    for (kind, _, one), result in zip(runs, results, strict=True):
        goal = one.honest if kind != "none" else np.asarray(one.problem.minimizer)
        distances = np.linalg.norm(result.iterates - goal, axis=1) / one.apart
        far[kind].append(float(distances[-1]) if result.status == "done" and np.isfinite(distances[-1]) else np.inf)
        if kind == "wrong labels" and one is family[0]:
            ways = np.pad(distances, (0, rounds + 1 - len(distances)), mode="edge")
    return {kind: np.max(np.reshape(values, (-1, len(family))), axis=0) for kind, values in far.items()}, ways


def _number(value: Any) -> str:
    return "diverges" if not np.isfinite(value) else f"{float(value):.2g}"
