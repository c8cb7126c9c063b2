"""What is minimised: problems with everything that is known about them."""

from fedlin.problems.custom import from_loss
from fedlin.problems.logistic import logistic
from fedlin.problems.minibatch import minibatch
from fedlin.problems.noise import noisy
from fedlin.problems.poisson import poisson
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import quadratic
from fedlin.problems.regression import least_squares, regression
from fedlin.problems.softmax import softmax

__all__ = [
    "Problem",
    "from_loss",
    "least_squares",
    "logistic",
    "minibatch",
    "noisy",
    "poisson",
    "quadratic",
    "regression",
    "softmax",
]
