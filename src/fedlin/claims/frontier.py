"""The frontier of few bits and few rounds: every method on four problems, each tuned by one rule."""

from math import isfinite

from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.entrants import ENTRANTS
from fedlin.claims.common.kept_runs import kept
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.claims.common.published import PUBLISHED_BITS
from fedlin.claims.common.run_costs import LATENCY, SPEED, bits_unit, play
from fedlin.claims.common.shootout_data import A9A, BATTLES, STIFF, Battle
from fedlin.claims.common.shootout_page import (
    BITS,
    CONVENTIONS,
    TO,
    Runs,
    TunedRun,
    ahead,
    costs_tables,
    on_frontier,
    pareto,
    why,
    winners_table,
)
from fedlin.claims.common.tune_entrants import takes_part, tuned
from fedlin.engines.bits import WAYS
from fedlin.matrices import triangle_size
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

BEST, PUBLISHED = "FedLin, Newton", "FedNL"  # ours with the fewest bits on a9a, and the best that others published
QUICK = {A9A: (PUBLISHED, BEST), STIFF: ("Scaffnew", "FedLin, half", PUBLISHED, BEST)}
SHARE = 0.15  # of what FedNL takes, at most
NEARLY = 0.05  # the share by which FedNL's own bits may differ from what was published
SEED = 1  # steps are tuned with seed 0
CAPTION = (
    "A mark is a method as it was tuned, missing where it does not come there; the line joins those that no other "
    "method beats in both."
)


@claim(
    "frontier",
    order=710,
    title="The frontier of few bits",
    section=OPEN,
    statement="On the logistic regression of FedNL's authors (a9a, 80 clients), each method tuned by one rule, FedLin "
    "whose local steps are Newton's, with few bits an entry, takes fewer bits in all, up and down, to 10⁻¹⁰ than every "
    f"other method, and less than {SHARE:g} of what FedNL takes as its authors send it: as most papers count them, on "
    "the wire, and after an entropy coder. FedNL is as good as its authors published.",
    wrong=any_fault({}, without=(SHORTER,)),  # it takes one local step
    by_name=True,  # minutes of passes over all rows
)
def check(setting: Setting) -> Outcome:
    """Rounds, bits, gradients and seconds to each gap; all methods, on a quick run a few."""
    if BATTLES[A9A]() is None:
        return Outcome((), skipped="a9a.gz was not found: set FEDLIN_DATA to its folder")
    names = setting.pick(tuple(BATTLES), tuple(QUICK))
    battles = {name: battle for name in names if (battle := BATTLES[name]()) is not None}
    findings = [f"{name} is left out: its files were not found." for name in names if name not in battles]
    findings += [
        f"{name} is without methods that ask for Hessians or proximal steps: with {battle.problem.dim} variables a "
        "round takes them minutes."
        for name, battle in battles.items()
        if not all(takes_part(entrant, battle) for entrant in ENTRANTS.values())
    ]
    all_played = {name: _all(name, battle, setting) for name, battle in battles.items()}
    played = {name: {method: one.spending for method, one in runs.items()} for name, runs in all_played.items()}
    rows = [row for way in WAYS for row in _fewest(way, played[A9A])]
    rows.append(_as_published(battles[A9A], played[A9A]))
    for name, runs in played.items():
        findings += filter(None, (ahead(name, runs, played[A9A]), on_frontier(name, runs), why(name, runs)))
    tables = [winners_table(name, runs) for name, runs in played.items()]
    tables += [table for name, runs in all_played.items() for table in costs_tables(name, runs)]
    methods = [method for method in ENTRANTS if any(method in runs for runs in played.values())]
    figures = tuple(
        Figure(
            f"frontier-{unit}",
            f"Bits and {unit} to {TO:g}",
            tuple(pareto(name, runs, unit, methods) for name, runs in played.items()),
            CAPTION,
        )
        for unit in ("rounds", "gradients")
    )
    return Outcome(
        tuple(rows),
        {name: _words(battle) for name, battle in battles.items()}
        | {"tuning": "one rule for all, in tune_entrants.py; chosen with other coins than those of the runs"}
        | {"bits": "of one client; papers: 32 a number or its own size if less, ⌈log₂ d⌉ an index"}
        | {"seconds": f"{SPEED:g} gradients a second, {LATENCY:g} s a message"}
        | {"gradients": "of one client; a Hessian counts as d/2, a proximal step as ten Hessians"},
        held=int(all(row.ok for row in rows)),
        draws=1,
        figures=figures,
        tables=tuple(tables),
        findings=tuple(findings),
    )


def _all(name: str, battle: Battle, setting: Setting) -> dict[str, TunedRun]:
    """The runs of all methods on a problem; the one that the statement is about with the fault to be noticed."""
    chosen = [method for method in ENTRANTS if method in tuned()[name]]
    runs = {method: _as_tuned(name, method, battle) for method in chosen if not setting.quick or method in QUICK[name]}
    if setting.fault is not None and name == A9A:
        choice = tuned()[name][BEST]
        variant = ENTRANTS[BEST].variants(battle.problem)[choice["variant"]]
        faulty = variant._replace(method=setting.tested(variant.method))
        spending = play(ENTRANTS[BEST], faulty, battle, choice["multiple"], SEED)
        runs[BEST] = runs[BEST]._replace(spending=spending)
    return runs


def _as_tuned(name: str, method: str, battle: Battle) -> TunedRun:
    """The run as it was tuned; where half precision does not come to the target, that in whole numbers instead."""
    choice = tuned()[name][method]
    variants = ENTRANTS[method].variants(battle.problem)

    def run(variant: str) -> TunedRun:
        facts = f"{name}, {len(battle.problem.row_counts)} clients, {sum(battle.problem.row_counts)} rows"
        facts += f", {method}, {variant}, {choice['multiple']}, seed {SEED}"
        return TunedRun(
            variant,
            choice["multiple"],
            kept(facts, lambda: play(ENTRANTS[method], variants[variant], battle, choice["multiple"], SEED)),
        )

    played = run(choice["variant"])
    whole = _in_whole_numbers(choice["variant"], tuple(variants))
    return played if whole is None or isfinite(played.spending.at(TO, BITS)) else run(whole)


def _in_whole_numbers(variant: str, variants: tuple[str, ...]) -> str | None:
    """The variant of a method that is this one but for half precision; None where there is none."""
    if not variant.endswith("half"):
        return None
    stem = variant.removesuffix("half").removesuffix(", ") or "whole"
    return next((one for one in variants if one != variant and one.startswith(stem)), None)


def _fewest(way: str, runs: Runs) -> list[Row]:
    """The bits of ours over the least of the others, and over those of FedNL."""
    unit = bits_unit(way, "both")
    ours = runs[BEST].at(TO, unit)
    least = min((run.at(TO, unit), name) for name, run in runs.items() if name != BEST)
    theirs = runs[PUBLISHED].at(TO, unit), PUBLISHED
    what = f"{A9A}: bits in all to {TO:g} of {BEST} over those of"
    return [
        Row(
            f"{what} {whose}, {CONVENTIONS[way]}",
            f"{ours:,.0f} / {bits:,.0f} ({name}) = {ours / bits:.2f}",
            f"below {limit:g}",
            bool(ours < limit * bits),
        )
        for whose, (bits, name), limit in (("the best of the others", least, 1.0), ("FedNL", theirs, SHARE))
    ]


def _as_published(battle: Battle, runs: Runs) -> Row:
    """What FedNL sends up as its authors count, who had Hessians at the start and their changes in every round."""
    d, expected = battle.problem.dim, PUBLISHED_BITS["FedNL, rank 1"][-1]
    bits = 32 * triangle_size(d) + runs[PUBLISHED].at(TO, "rounds") * 2 * 32 * d
    return Row(
        f"{A9A}: bits up to {TO:g} of {PUBLISHED}, as its authors count",
        f"{bits:,.0f}",
        f"{expected:,} ± {NEARLY:.0%}",
        bool(abs(bits / expected - 1) <= NEARLY),
    )


def _words(battle: Battle) -> str:
    problem = battle.problem
    return f"{problem.clients} clients, d = {problem.dim}, κ = {problem.condition:.0f}"
