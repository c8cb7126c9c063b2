"""Real data: reading, preparing and fetching it, dealing its rows to clients, and measuring how much clients differ."""

from fedlin.data.client_heterogeneity import Heterogeneity, heterogeneity
from fedlin.data.download import fetch, names
from fedlin.data.labels import signs
from fedlin.data.partition import Partition
from fedlin.data.preparation import Preparation, Recipe
from fedlin.data.prepare_table import PreparedTable, hold_out, prepare
from fedlin.data.raw_table import RawTable
from fedlin.data.read import read, read_table
from fedlin.data.split import by_column, dirichlet, iid, quantity, shards
from fedlin.data.table import Table

__all__ = [
    "Heterogeneity",
    "Partition",
    "Preparation",
    "PreparedTable",
    "RawTable",
    "Recipe",
    "Table",
    "by_column",
    "dirichlet",
    "fetch",
    "heterogeneity",
    "hold_out",
    "iid",
    "names",
    "prepare",
    "quantity",
    "read",
    "read_table",
    "shards",
    "signs",
]
