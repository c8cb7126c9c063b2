"""Step sizes, bounds and constants, one function a theorem."""

from fedlin.theory import bounds, exact, lower_bound, splitting, staged, surrogate
from fedlin.theory.certified_steps import certified
from fedlin.theory.dissimilarity import dissimilarity
from fedlin.theory.method_steps import (
    diana,
    ef21,
    fedac,
    fedcomgate,
    fedpaq,
    fedsplit,
    flanp,
    gradient_tracking,
    s_local_svrg,
    scaffnew,
)
from fedlin.theory.steps import (
    client_feedback,
    convex,
    convex_last,
    homogeneous,
    noisy,
    noisy_decaying,
    nonconvex,
    polyak_lojasiewicz,
    server_feedback,
    server_sparse,
    strongly_convex,
)

__all__ = [
    "bounds",
    "certified",
    "client_feedback",
    "convex",
    "convex_last",
    "diana",
    "dissimilarity",
    "ef21",
    "exact",
    "fedac",
    "fedcomgate",
    "fedpaq",
    "fedsplit",
    "flanp",
    "gradient_tracking",
    "homogeneous",
    "lower_bound",
    "noisy",
    "noisy_decaying",
    "nonconvex",
    "polyak_lojasiewicz",
    "s_local_svrg",
    "scaffnew",
    "server_feedback",
    "server_sparse",
    "splitting",
    "staged",
    "strongly_convex",
    "surrogate",
]
