"""The methods, one file each."""

from fedlin.algorithms.fedavg import fedavg
from fedlin.algorithms.fedlin import fedlin
from fedlin.algorithms.fednova import fednova
from fedlin.algorithms.fedprox import fedprox
from fedlin.algorithms.fedsplit import fedsplit
from fedlin.algorithms.gradient_descent import gradient_descent
from fedlin.algorithms.scaffold import scaffold

__all__ = ["fedavg", "fedlin", "fednova", "fedprox", "fedsplit", "gradient_descent", "scaffold"]
