"""Step sizes, bounds and constants, one function a theorem."""

from fedlin.theory import bounds, lower_bound, splitting, surrogate
from fedlin.theory.dissimilarity import dissimilarity
from fedlin.theory.steps import (
    client_feedback,
    convex,
    convex_last,
    diana,
    ef21,
    fedsplit,
    homogeneous,
    noisy,
    noisy_decaying,
    nonconvex,
    polyak_lojasiewicz,
    scaffnew,
    server_feedback,
    server_sparse,
    strongly_convex,
)

__all__ = [
    "bounds",
    "client_feedback",
    "convex",
    "convex_last",
    "diana",
    "dissimilarity",
    "ef21",
    "fedsplit",
    "homogeneous",
    "lower_bound",
    "noisy",
    "noisy_decaying",
    "nonconvex",
    "polyak_lojasiewicz",
    "scaffnew",
    "server_feedback",
    "server_sparse",
    "splitting",
    "strongly_convex",
    "surrogate",
]
