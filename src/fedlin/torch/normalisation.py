"""Batch normalisation made fit for a federation, where a row's output must not depend on the other rows."""

import copy
from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedlin.checks import positive_integer
from fedlin.errors import ArgumentError


def with_group_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of the model with every batch normalisation replaced by group normalisation.

    Scale and bias are taken over; running statistics go.

    Args:
        model: the module.
        groups: of channels, at most; a layer gets the largest number up to it that divides its channels.

    Returns:
        The copy.

    >>> model = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12))
    >>> with_group_norm(model, groups=8)[1].num_groups
    6
    """
    most = positive_integer("groups", groups)

    def replace(norm: _BatchNorm) -> nn.Module:
        channels = norm.num_features
        count = max(k for k in range(1, min(most, channels) + 1) if channels % k == 0)
        group = nn.GroupNorm(count, channels, norm.eps, norm.affine)
        if norm.affine:
            group.load_state_dict({"weight": norm.weight, "bias": norm.bias})
            group.to(norm.weight)
            for mine, other in zip(group.parameters(), norm.parameters(), strict=True):
                mine.requires_grad_(other.requires_grad)
        return group.train(norm.training)

    return _replaced(model, replace)


def with_frozen_batch_norm(model: nn.Module) -> nn.Module:
    """A copy of the model whose batch normalisation uses its running statistics as they are, in training too.

    Args:
        model: the module, with statistics from earlier training.

    Returns:
        The copy. Scale and bias are still learned, and everything else keeps its mode.

    >>> model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))
    >>> [part.training for part in with_frozen_batch_norm(model)]
    [False, True]
    """

    def freeze(norm: _BatchNorm) -> nn.Module:
        if not norm.track_running_stats:
            raise ArgumentError(f"{norm} keeps no running statistics to freeze: use fedlin.torch.with_group_norm.")
        return norm.eval()

    return _replaced(model, freeze)


def _replaced(model: nn.Module, change: Callable[[_BatchNorm], nn.Module]) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model = {model!r:.80} is not allowed: give a torch.nn.Module.")
    model = copy.deepcopy(model)
    if isinstance(model, _BatchNorm):
        return change(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, change(child))
    return model
