"""What a problem asks of torch: losses, gradients and local work of many clients at flat models.

Every argument has a leading axis of clients, of length one where all clients share one value.
"""

import copy
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedlin.core import Array
from fedlin.torch.module_gradients import Loss, ModuleSlopes, Slopes, find_slots
from fedlin.torch.module_rows import AllRows, ModuleBatches

_REMEMBERED = 10**7  # entries of gradients that are kept: a model is measured, and then asked for its gradient again


class Work(NamedTuple):
    """The arguments of local work: see `fedlin.core.Descend`."""

    start: Tensor
    shift: Tensor
    pull: Tensor
    center: Tensor
    steps: Tensor
    eta: Tensor
    anchor: Tensor | None = None


class Host:
    """The clients of one problem; one computation at a time, since a module is lent its parameters for each."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        rows: AllRows,
        *,
        batches: ModuleBatches | None = None,
        l2: float = 0.0,
        precision: str | None = None,
        together: bool = True,
        draws: bool = False,
    ) -> None:
        self.module, self.loss_function, self.rows = module, loss, rows
        self.batches, self.l2, self.precision, self.draws = batches, l2, precision, draws
        self.slots = find_slots(module)
        self.together = together and rows.alike
        self._training = ModuleSlopes(module, loss, l2, precision, self.together)
        # What is measured is the model as it will be used, which draws nothing.
        measured = copy.deepcopy(module).eval() if draws else module
        self._measuring = ModuleSlopes(measured, loss, l2, precision, self.together)
        self._at_once = len(rows.lengths) if self.together else 1  # clients that fit the device
        self._lock = Lock()
        self._known: tuple[Array, Tensor, Slopes] | None = None
        self._like = next(iter(module.parameters())).detach()

    def point(self) -> Array:
        """The flat model the module holds."""
        parameters = dict(self.module.named_parameters())
        return np.concatenate([parameters[name].detach().cpu().numpy().ravel() for name in self.slots])

    def exact(self, clients: Tensor, x: Tensor) -> Slopes:
        """f_i(x) and ∇f_i(x)."""
        with self._lock:
            return self._exact(_numbers(clients, max(len(clients), len(x))), self._here(x))

    def total(self, clients: Tensor, weights: Tensor, x: Tensor) -> Slopes:
        """Σ w_i f_i(x) and Σ w_i ∇f_i(x); a row of `clients` and of `weights` for each x, or one for all."""
        count = max(len(clients), len(weights), len(x))
        members, shares = (part.expand(count, -1).cpu() for part in (clients, weights))
        with self._lock:
            models = self._here(x).expand(count, -1)
            sums = [self._sum(m.numpy(), w, at[None]) for m, w, at in zip(members, shares, models, strict=True)]
        return Slopes(torch.stack([sum_.losses for sum_ in sums]), torch.stack([sum_.grads for sum_ in sums]))

    def full(self, clients: Tensor, x: Tensor, keys: Tensor) -> Slopes:
        """The loss and the gradient over all rows, with what the module draws."""
        count = max(len(clients), len(x), len(keys))
        numbers, words = _numbers(clients, count), _numbers(keys, count)
        with self._lock:
            return self._evaluate(
                self._training, numbers, None, self._here(x), self._seeds(words, np.zeros(count, int))
            )

    def estimate(self, clients: Tensor, x: Tensor, keys: Tensor, steps: Tensor) -> Slopes:
        """The loss and the gradient over the rows that local work with these keys takes in these steps."""
        count = max(len(clients), len(x), len(keys), len(steps))
        numbers, words, at = (_numbers(part, count) for part in (clients, keys, steps))
        with self._lock:
            drawn = self._draw(numbers, words, at + 1)
            picked = None if drawn is None else [batches[-1] for batches in drawn]
            return self._evaluate(self._training, numbers, picked, self._here(x), self._seeds(words, at))

    def descend(self, clients: Tensor, keys: Tensor, work: Work) -> tuple[Tensor, Tensor]:
        """x ← x - η(∇f_i(x) + shift + pull (x - center)), over the rows that each step draws: x, and the sum of losses.

        With an anchor each step takes ∇f_i(x) - ∇f_i(anchor) over its draw.
        """
        count = max(len(part) for part in (clients, keys, *work) if part is not None)
        steps = _numbers(work.steps, count)
        longest_first = np.argsort(-steps, kind="stable")  # so that those still at work come first
        numbers, words = (_numbers(part, count)[longest_first] for part in (clients, keys))
        steps = steps[longest_first]
        drawn = self._draw(numbers, words, steps)
        with self._lock:
            order = torch.from_numpy(longest_first).to(self._like.device)
            placed = [None if part is None else self._here(part) for part in work]
            start, shift, pull, center, _, eta, anchor = (
                part if part is None or len(part) == 1 else part[order] for part in placed
            )
            x = start.expand(count, -1).clone()  # type: ignore[union-attr]
            losses = x.new_zeros(count)
            for step in range(int(steps[0])):
                active = int(np.count_nonzero(steps > step))
                now, picked = x[:active], None if drawn is None else [batches[step] for batches in drawn[:active]]
                seeds = self._seeds(words[:active], np.full(active, step))
                here = self._evaluate(self._training, numbers[:active], picked, now, seeds)
                move = here.grads + _first(shift, active)
                if anchor is not None:
                    move -= self._evaluate(
                        self._training, numbers[:active], picked, _first(anchor, active), seeds
                    ).grads
                move += _first(pull, active) * (now - _first(center, active))
                now -= _first(eta, active) * move
                losses[:active] += here.losses
            return x[torch.argsort(order)], losses[torch.argsort(order)]

    def _exact(self, numbers: Array, x: Tensor) -> Slopes:
        known = self._known
        if known is not None and np.array_equal(known[0], numbers) and torch.equal(known[1], x):
            return known[2]
        slopes = self._evaluate(self._measuring, numbers, None, x, None)
        if len(x) == 1 and slopes.grads.numel() <= _REMEMBERED:
            self._known = numbers.copy(), x.clone(), slopes  # what was given is lent for this call only
        return slopes

    def _sum(self, numbers: Array, weights: Tensor, x: Tensor) -> Slopes:
        """Σ w_i f_i(x) and Σ w_i ∇f_i(x), never holding more gradients than may be remembered."""
        few = max(1, _REMEMBERED // x.shape[1])
        total = Slopes(x.new_zeros(()), torch.zeros_like(x[0]))
        for first in range(0, len(numbers), few):
            each, share = self._exact(numbers[first : first + few], x), weights[first : first + few].to(x)
            total = Slopes(total.losses + share @ each.losses, total.grads + share @ each.grads)
        return total

    def _evaluate(
        self, slopes: ModuleSlopes, numbers: Array, picked: list[Array] | None, x: Tensor, seeds: list[int] | None
    ) -> Slopes:
        """Every client's slopes over the rows picked for it, or all of its own: at once those that take as many."""
        sizes = self.rows.lengths[numbers] if picked is None else np.array([len(rows) for rows in picked])
        groups = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
        if len(groups) == 1 and len(numbers) <= self._at_once:
            try:
                return slopes(x, self.rows.of(numbers, picked), seeds)
            except torch.OutOfMemoryError as cause:
                self._take_fewer(len(numbers), int(sizes[0]), cause)
        joined = Slopes(x.new_empty(len(numbers)), x.new_empty(len(numbers), x.shape[1]))
        for group in groups:
            for part in np.array_split(group, -(-len(group) // self._at_once)):
                own = self._evaluate(
                    slopes,
                    numbers[part],
                    None if picked is None else [picked[i] for i in part],
                    x if len(x) == 1 else x[part],
                    None if seeds is None else [seeds[i] for i in part],
                )
                joined.losses[part], joined.grads[part] = own
        return joined

    def _take_fewer(self, clients: int, rows: int, cause: Exception) -> None:
        if clients == 1:
            raise MemoryError(
                f"{rows} rows of one client do not fit the device beside what it holds: lower batch_size, "
                'or give precision="bfloat16".'
            ) from cause
        torch.cuda.empty_cache()
        self._at_once = (clients + 1) // 2

    def _draw(self, numbers: Array, words: Array, steps: Array) -> list[list[Array]] | None:
        """The rows of every client's every step; None where each takes all of its own."""
        if self.batches is None:
            return None
        of_each = zip(words, self.rows.lengths[numbers], steps, strict=True)
        return [self.batches.draw(key, int(rows), int(count)) for key, rows, count in of_each]

    def _seeds(self, words: Array, steps: Array) -> list[int] | None:
        """A seed of torch's for every client, a function of its key and its step."""
        if not self.draws:
            return None
        sources = [[*map(int, key), int(step)] for key, step in zip(words, steps, strict=True)]
        return [int(np.random.SeedSequence(source).generate_state(1, np.uint64)[0]) for source in sources]

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._like)


def _first(part: Tensor | None, clients: int) -> Tensor:
    """What belongs to the first clients, where each has one of its own."""
    assert part is not None
    return part if len(part) == 1 else part[:clients]


def _numbers(tensor: Tensor, count: int) -> Array:
    """Whole numbers as an array of so many rows."""
    array = tensor.cpu().numpy()
    return np.broadcast_to(array, (count, *array.shape[1:]))
