"""Real data: reading and fetching it, dealing its rows to clients, and measuring how much clients differ."""

from fedlin.data.download import fetch, names
from fedlin.data.labels import signs
from fedlin.data.partition import Partition
from fedlin.data.read import read
from fedlin.data.split import by_column, dirichlet, iid, quantity, shards
from fedlin.data.spread import Heterogeneity, heterogeneity
from fedlin.data.table import Table

__all__ = [
    "Heterogeneity",
    "Partition",
    "Table",
    "by_column",
    "dirichlet",
    "fetch",
    "heterogeneity",
    "iid",
    "names",
    "quantity",
    "read",
    "shards",
    "signs",
]
