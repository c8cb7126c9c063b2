"""The frontier of few bits and few rounds: every method on four problems, each tuned by one rule."""

from collections.abc import Mapping

from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.altered import SHORTER, any_fault
from fedlin.claims.common.entrants import ENTRANTS, Variant
from fedlin.claims.common.kept_runs import kept
from fedlin.claims.common.shootout_data import A9A, BATTLES, STIFF, Battle
from fedlin.claims.common.shootout_page import CONVENTIONS, TO, ahead, costs_tables, pareto, winners_table
from fedlin.claims.common.spending import LATENCY, SPEED, Spending, bits_unit, play
from fedlin.claims.common.tune_entrants import tuned
from fedlin.engines.bits import WAYS
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

BEST = "FedNL, half"  # ours with the fewest bits on a9a
QUICK = {A9A: ("FedNL", BEST), STIFF: ("Scaffnew", "FedLin, half", "FedNL", BEST)}
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
    statement="On the logistic regression of FedNL's authors (a9a, 80 clients), each method tuned by one rule, FedNL "
    "of rank 1 whose Hessians, gradients and models travel in half precision takes fewer bits in all, up and down, to "
    "10⁻¹⁰ than every other method: as most papers count them, on the wire, and after an entropy coder.",
    wrong=any_fault(without=(SHORTER,)),  # it takes no local steps
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
        f"{name} is without methods that ask for Hessians or proximal steps: with {battle.problem.dim} variables a round "
        "takes them minutes."
        for name, battle in battles.items()
        if len(tuned()[name]) < len(ENTRANTS)
    ]
    played = {name: _all(name, battle, setting) for name, battle in battles.items()}
    rows = [_fewest(way, played[A9A]) for way in WAYS]
    findings += [sentence for name, runs in played.items() if (sentence := ahead(name, runs, played[A9A]))]
    tables = [winners_table(name, runs) for name, runs in played.items()]
    tables += [table for name, runs in played.items() for table in costs_tables(name, runs, tuned()[name])]
    figures = tuple(
        Figure(
            f"frontier-{unit}",
            f"Bits and {unit} to {TO:g}",
            tuple(pareto(name, runs, unit) for name, runs in played.items()),
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


def _all(name: str, battle: Battle, setting: Setting) -> Mapping[str, Spending]:
    """The runs of all methods on a problem; the one that the statement is about with the fault to be noticed."""
    chosen = [method for method in ENTRANTS if method in tuned()[name]]
    runs = {method: _run(name, method, battle) for method in chosen if not setting.quick or method in QUICK[name]}
    if setting.fault is not None and name == A9A:
        variant, multiple = _as_tuned(name, BEST, battle)
        faulty = variant._replace(method=setting.tested(variant.method))
        runs[BEST] = play(ENTRANTS[BEST], faulty, battle, multiple, SEED)
    return runs


def _run(name: str, method: str, battle: Battle) -> Spending:
    variant, multiple = _as_tuned(name, method, battle)
    facts = f"{name} {method} {tuned()[name][method]['variant']} {multiple} {SEED} {battle.start.sum()}"
    return kept(facts, lambda: play(ENTRANTS[method], variant, battle, multiple, SEED))


def _as_tuned(name: str, method: str, battle: Battle) -> tuple[Variant, float]:
    choice = tuned()[name][method]
    return ENTRANTS[method].variants(battle.problem)[choice["variant"]], choice["multiple"]


def _fewest(way: str, runs: Mapping[str, Spending]) -> Row:
    """The bits of ours over the least of the others."""
    unit = bits_unit(way, "both")
    ours = runs[BEST].at(TO, unit)
    least, name = min((run.at(TO, unit), name) for name, run in runs.items() if name != BEST)
    return Row(
        f"{A9A}: bits in all to {TO:g} of {BEST} over the least of the others, {CONVENTIONS[way]}",
        f"{ours:,.0f} / {least:,.0f} ({name}) = {ours / least:.2f}",
        "below 1",
        bool(ours < least),
    )


def _words(battle: Battle) -> str:
    problem = battle.problem
    return f"{problem.clients} clients, d = {problem.dim}, κ = {problem.condition:.0f}"
