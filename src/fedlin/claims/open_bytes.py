"""Bytes to an accuracy for every method, on well-conditioned least squares and on real data."""

import numpy as np

from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.bytes_methods import FIGURE_3, FLOAT16, PAPER, REAL, ROWS, instance, methods
from fedlin.claims.common.instances import draws
from fedlin.claims.open_models import CAPTION, COUNTED, best, bills, compared, costs, panel, run_methods
from fedlin.report.figure import Figure

AIM = 2.0  # times fewer bytes than the paper's best setting


@claim(
    "open-bytes",
    order=521,
    title="Bytes of every method on least squares and on a9a",
    section=OPEN,
    statement="On Figure 3's least squares and on logistic regression on a9a FedLin whose four messages travel in "
    "float16 comes to 10⁻¹² of the first gap with at least two times fewer bytes than FedLin as in the paper at its "
    "best.",
    by_name=True,  # forty programs to compile
)
def check(setting: Setting) -> Outcome:
    """As in open-models; on a quick run FedLin alone."""
    names = setting.pick(tuple(methods()), (FLOAT16, PAPER[0]))
    rows, panels, findings = [], [], []
    for problem in (FIGURE_3, REAL):
        if instance(problem, 0) is None:
            findings.append("a9a.gz was not found, so logistic regression is left out: set FEDLIN_DATA to its folder.")
            continue
        runs = run_methods(problem, names, draws(setting)[:1], setting.rounds)
        paper = np.min([costs(runs[name]) for name in PAPER if name in runs], axis=0) / costs(runs[FLOAT16])
        rows += bills(problem, runs)
        rows.append(compared(problem, "the paper's best setting", FLOAT16, paper, paper >= AIM, f"at least × {AIM:g}"))
        panels.append(panel(problem, runs))
        findings.append(best(problem, runs))
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100 (a9a: 123)", "rows of a9a": f"20 · {ROWS}"}
        | {"rounds": "at most 300, on a9a at most 2000 and 4000 local steps"}
        | COUNTED,
        held=int(all(row.ok is not False for row in rows)),
        figures=(Figure("open-bytes", "Bytes to accuracy", tuple(panels), CAPTION),),
        findings=tuple(findings),
    )
