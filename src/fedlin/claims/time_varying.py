"""Section 4: the guarantees survive machines whose speed changes from round to round."""

from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.bounded import judge
from fedlin.claims.common.wrong_methods import DELAYED, LONGER, STALE, TRIPLE, must_notice
from fedlin.claims.thm1 import BOUND, ROUNDS, cases
from fedlin.report.figure import Figure


@claim(
    "time-varying",
    order=190,
    title="Speeds that change every round",
    section="Rates without compression",
    statement="With τ_i(t) different in every round and η_i(t) = 1/(6Lτ_i(t)) the rate of Theorem 1 stays: "
    "f(x̄_{T+1}) - f* ≤ (1 - 1/(6κ))^T (f(x̄_1) - f*).",
    wrong=must_notice({TRIPLE: LONGER, STALE: DELAYED}),
)
def check(setting: Setting) -> Outcome:
    """Theorem 1's check with τ drawn anew for every client and round."""
    found = cases(setting, varying=True)
    panels = tuple(case.panel("gap / first gap", bound=BOUND) for case in found)
    return judge(
        found,
        Figure("time-varying", "FedLin with new numbers of local steps every round", panels),
        {"clients": "10", "τ": "uniform on {1, ..., 10}, anew every round", "η": "1/(6Lτ)"}
        | {"rounds": str(setting.rounds or ROUNDS)},
    )
