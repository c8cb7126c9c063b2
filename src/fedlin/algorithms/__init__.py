"""The methods, one file each."""

from fedlin.algorithms.adiana import adiana
from fedlin.algorithms.compressed import compressed
from fedlin.algorithms.compressed_scaffnew import compressed_scaffnew
from fedlin.algorithms.diana import diana
from fedlin.algorithms.ef21 import ef21
from fedlin.algorithms.fedac import fedac
from fedlin.algorithms.fedavg import fedavg
from fedlin.algorithms.fedcomgate import fedcomgate
from fedlin.algorithms.fedlin import fedlin
from fedlin.algorithms.fedlin_newton import fedlin_newton
from fedlin.algorithms.fednl import fednl
from fedlin.algorithms.fednl_pp import fednl_pp
from fedlin.algorithms.fednova import fednova
from fedlin.algorithms.fedpaq import fedpaq
from fedlin.algorithms.fedprox import fedprox
from fedlin.algorithms.fedsplit import fedsplit
from fedlin.algorithms.gradient_descent import gradient_descent
from fedlin.algorithms.gradient_tracking import gradient_tracking
from fedlin.algorithms.gradskip import gradskip
from fedlin.algorithms.locodl import locodl
from fedlin.algorithms.marina import marina
from fedlin.algorithms.s_local_svrg import s_local_svrg
from fedlin.algorithms.scaffnew import scaffnew
from fedlin.algorithms.scaffold import scaffold
from fedlin.algorithms.tamuna import tamuna

__all__ = [
    "adiana",
    "compressed",
    "compressed_scaffnew",
    "diana",
    "ef21",
    "fedac",
    "fedavg",
    "fedcomgate",
    "fedlin",
    "fedlin_newton",
    "fednl",
    "fednl_pp",
    "fednova",
    "fedpaq",
    "fedprox",
    "fedsplit",
    "gradient_descent",
    "gradient_tracking",
    "gradskip",
    "locodl",
    "marina",
    "s_local_svrg",
    "scaffnew",
    "scaffold",
    "tamuna",
]
