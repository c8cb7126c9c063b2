"""scikit-learn estimators fitted across clients: the minimisers of scikit-learn's own, without pooling the rows.

All minimise (1/n) Σ_j loss_j + (l2/2)‖w‖² over all n rows, the intercept not penalised: client i counts in proportion
to its rows, so the split of the rows among clients changes the path and not the minimiser. Nor do units change how well
it is reached: each fit rescales the problem by sums that clients can form (see `rescaled_rounds`), and returns
coefficients in the units of X.
"""

from fedlin.sklearn.classifiers import FederatedLogisticRegression, FederatedMultinomialRegression
from fedlin.sklearn.regressors import FederatedPoissonRegression, FederatedRidge

__all__ = [
    "FederatedLogisticRegression",
    "FederatedMultinomialRegression",
    "FederatedPoissonRegression",
    "FederatedRidge",
]
