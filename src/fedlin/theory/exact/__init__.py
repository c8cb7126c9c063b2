"""Exact theory: worst cases of methods over classes of functions, by semidefinite programs, with proofs.

Needs the extra `fedlin[exact]`, which brings a solver; to check stored proofs none is needed.
"""

from fedlin.theory.exact.certificate import Certificate
from fedlin.theory.exact.functions import Dissimilar, PolyakLojasiewicz, Quadratics, Smooth
from fedlin.theory.exact.lyapunov import lyapunov
from fedlin.theory.exact.rate_search import ProvedRate
from fedlin.theory.exact.scaffnew_rate import scaffnew_rate
from fedlin.theory.exact.semidefinite import SolverError, UnboundedError
from fedlin.theory.exact.trace import contraction
from fedlin.theory.exact.worst_case import WorstCase, WorstFunctions, worst_case

__all__ = [
    "Certificate",
    "Dissimilar",
    "PolyakLojasiewicz",
    "ProvedRate",
    "Quadratics",
    "Smooth",
    "SolverError",
    "UnboundedError",
    "WorstCase",
    "WorstFunctions",
    "contraction",
    "lyapunov",
    "scaffnew_rate",
    "worst_case",
]
