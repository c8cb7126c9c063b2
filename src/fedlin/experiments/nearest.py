"""Telling what was probably meant."""

import difflib
from collections.abc import Iterable


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """A sentence that names what was given, the nearest known name and all that are known.

    >>> unknown("key", "alpa", ["alpha", "seed"])
    "no key is called 'alpa': did you mean 'alpha'? Known: alpha, seed."
    """
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1)
    meant = f": did you mean {near[0]!r}?" if near else "."
    return f"no {what} is called {given!r}{meant} Known: {', '.join(names)}."
