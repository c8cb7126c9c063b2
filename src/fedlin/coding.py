"""An adaptive arithmetic coder: whole numbers become about as many bits as their entropy, however they are distributed.

I. H. Witten, R. M. Neal, J. G. Cleary, Arithmetic Coding for Data Compression, Communications of the ACM, 1987. Both
ends count how often each symbol came and begin with one of each, so that no table is sent.
"""

from collections.abc import Iterable

_TOP = 1 << 32
_HALF, _QUARTER = _TOP >> 1, _TOP >> 2
_MOST = 1 << 24  # counts are halved here, so that the interval never becomes too short for them


class SymbolCounts:
    """How often each symbol came, with sums of those below one in logarithmic time (a Fenwick tree)."""

    def __init__(self, alphabet: int) -> None:
        self.counts = [1] * alphabet
        self._build()

    def _build(self) -> None:
        self.total = sum(self.counts)
        self.tree = [0, *self.counts]
        for place in range(1, len(self.tree)):
            above = place + (place & -place)
            if above < len(self.tree):
                self.tree[above] += self.tree[place]

    def below(self, symbol: int) -> int:
        """The counts of all smaller symbols together."""
        total = 0
        while symbol > 0:
            total += self.tree[symbol]
            symbol &= symbol - 1
        return total

    def at(self, target: int) -> int:
        """The symbol whose share of the total this number falls into."""
        place, step = 0, 1 << (len(self.counts).bit_length())
        while step:
            onward = place + step
            if onward < len(self.tree) and self.tree[onward] <= target:
                place, target = onward, target - self.tree[onward]
            step >>= 1
        return place

    def add(self, symbol: int) -> None:
        """Count a symbol once more."""
        self.counts[symbol] += 1
        self.total += 1
        place = symbol + 1
        while place < len(self.tree):
            self.tree[place] += 1
            place += place & -place
        if self.total >= _MOST:
            self.counts = [(count + 1) // 2 for count in self.counts]
            self._build()


class ArithmeticEncoder:
    """The sending end.

    >>> encoder = ArithmeticEncoder(4)
    >>> encoder.write([0] * 1000)
    >>> len(encoder.finish())  # what it takes to learn that the other three do not come
    29
    """

    def __init__(self, alphabet: int) -> None:
        self.model = SymbolCounts(alphabet)
        self.output: list[int] = []
        self._low, self._high, self._pending = 0, _TOP - 1, 0

    @property
    def bits(self) -> int:
        """How many bits have gone out, those that are decided and not written yet included."""
        return len(self.output) + self._pending

    def write(self, symbols: Iterable[int]) -> None:
        """Encode symbols, each a whole number from 0 to the size of the alphabet less one."""
        for symbol in symbols:
            span, below = self._high - self._low + 1, self.model.below(symbol)
            self._high = self._low + span * (below + self.model.counts[symbol]) // self.model.total - 1
            self._low = self._low + span * below // self.model.total
            self.model.add(symbol)
            while True:
                if self._high < _HALF:
                    self._put(0)
                elif self._low >= _HALF:
                    self._put(1)
                    self._low, self._high = self._low - _HALF, self._high - _HALF
                elif self._low >= _QUARTER and self._high < 3 * _QUARTER:
                    self._pending += 1
                    self._low, self._high = self._low - _QUARTER, self._high - _QUARTER
                else:
                    break
                self._low, self._high = 2 * self._low, 2 * self._high + 1

    def _put(self, bit: int) -> None:
        self.output += [bit, *[1 - bit] * self._pending]
        self._pending = 0

    def finish(self) -> list[int]:
        """All bits, enough for the receiver to tell the last symbol."""
        self._pending += 1
        self._put(int(self._low >= _QUARTER))
        return self.output


def decode_symbols(bits: list[int], alphabet: int, count: int) -> list[int]:
    """The receiving end: the symbols, of which there are `count`.

    >>> encoder = ArithmeticEncoder(3)
    >>> encoder.write([2, 0, 1, 1])
    >>> decode_symbols(encoder.finish(), 3, 4)
    [2, 0, 1, 1]
    """
    model, symbols = SymbolCounts(alphabet), []
    low, high, value, place = 0, _TOP - 1, 0, 0
    for place in range(32):
        value = 2 * value + (bits[place] if place < len(bits) else 0)
    place = 32
    for _ in range(count):
        span = high - low + 1
        symbol = model.at(((value - low + 1) * model.total - 1) // span)
        below = model.below(symbol)
        high = low + span * (below + model.counts[symbol]) // model.total - 1
        low = low + span * below // model.total
        model.add(symbol)
        symbols.append(symbol)
        while high < _HALF or low >= _HALF or (low >= _QUARTER and high < 3 * _QUARTER):
            less = 0 if high < _HALF else _HALF if low >= _HALF else _QUARTER
            low, high, value = 2 * (low - less), 2 * (high - less) + 1, 2 * (value - less)
            value += bits[place] if place < len(bits) else 0
            place += 1
    return symbols
