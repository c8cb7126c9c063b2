"""Metrics of a torch module on test data, some rows at a time."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fedlin.errors import DataError
from fedlin.problems.metrics import ROWS, Evaluate, Metric
from fedlin.torch.module_rows import ModuleRows


def evaluate_module(
    metrics: Mapping[str, Metric], load: Callable[[Any], nn.Module], start: ArrayLike, test: ModuleRows
) -> Evaluate:
    """The function from a flat model to its metrics.

    Args:
        metrics: functions of a module in evaluation mode and a batch (inputs, targets), each a mean over its rows.
        load: the module with the parameters of a flat model.
        start: a flat model, for a first try on one row.
        test: the rows, where the module is.

    Returns:
        The function.
    """
    count = len(test.targets)

    @torch.no_grad()
    def evaluate(x: ArrayLike, rows: int = count) -> dict[str, float]:
        module = load(x).eval()
        sums: dict[str, Tensor] = {}
        for first in range(0, rows, ROWS):
            batch = test.take(slice(first, min(first + ROWS, rows)))
            for name, metric in metrics.items():
                value = torch.as_tensor(metric(module, tuple(batch)))
                if value.numel() != 1:
                    raise DataError(f"the metric {name} has shape {tuple(value.shape)}: give a mean over rows.")
                sums[name] = sums.get(name, 0) + value.detach().double() * len(batch.targets)
        return {name: (total / rows).item() for name, total in sums.items()}

    evaluate(start, 1)
    return evaluate
