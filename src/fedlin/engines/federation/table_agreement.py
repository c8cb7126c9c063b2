"""What a site lets be asked of its table before the rounds: by one recipe, and so many requests.

A summary tells words and quantiles of the columns that its recipe leaves in, and each further recipe tells more:
whoever could choose among recipes could have the table told.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from fedlin.checks import shown
from fedlin.data.preparation import Preparation, Recipe
from fedlin.engines.checkpoint import write_whole
from fedlin.engines.federation.limits import Limits, unreadable
from fedlin.errors import ArgumentError, WireError

AGREED = "agreed.json"


class TableAgreement:
    """The recipe of a site's table and the requests so far; on disk where it has a folder.

    Args:
        recipe: What the site's owner agrees to. Unless given, the first that is asked for, and no other from then on.
        folder: Where that and the requests are kept.

    >>> agreement = TableAgreement(Recipe(scale="none"), None)
    >>> agreement.check(Recipe())
    Traceback (most recent call last):
        ...
    fedlin.errors.WireError: scale is 'standard' in the recipe, and this site agrees to 'none': ask for that, or ...
    """

    def __init__(self, recipe: Recipe | None, folder: Path | None) -> None:
        self._path = None if folder is None else folder / AGREED
        self._given = recipe
        self._first: Recipe | None = None
        self._requests: list[str] = []
        if self._path is None or not self._path.exists():
            return
        try:
            saved = json.loads(self._path.read_text(encoding="utf-8"))
            self._first = None if saved["recipe"] is None else Recipe(**saved["recipe"])
            self._requests = list(map(str, saved["requests"]))
        except (ValueError, KeyError, TypeError, RecursionError, ArgumentError) as cause:
            raise unreadable(self._path) from cause

    @property
    def recipe(self) -> Recipe | None:
        """What was agreed to; None where nothing was asked for yet."""
        return self._first if self._given is None else self._given

    def check(self, recipe: Recipe) -> None:
        """Refuse any other recipe than the one that was agreed to."""
        if self.recipe is None or recipe == self.recipe:
            return
        asked, own = asdict(recipe), asdict(self.recipe)
        both = ", ".join(
            f"{name} is {shown(asked[name])} in the recipe, and this site agrees to {shown(own[name])}"
            for name in own
            if asked[name] != own[name]
        )
        change = "agree to another" if self._given is not None or self._path is None else f"remove {self._path.name}"
        raise WireError(f"{both}: ask for that, or have the site's owner {change}.")

    def check_columns(self, preparation: Preparation, columns: Iterable[str]) -> None:
        """Refuse a preparation of columns that the recipe leaves out.

        Args:
            preparation: What the server sends.
            columns: The names of the table's columns.
        """
        if self.recipe is None:
            return
        left = self.recipe.leaves(columns)
        for column in preparation.columns:
            if column.name not in left:
                raise WireError(
                    f"the preparation uses the column {shown(column.name)}, which the recipe that this site agrees to "
                    "leaves out: prepare the tables by that."
                )

    def count(self, request: bytes, limits: Limits) -> None:
        """A request is to be answered, which counts unless it was made before."""
        name = request.hex()
        if limits.requests is not None and name not in self._requests:
            limits.check("requests", len(self._requests) + 1)
            self._requests.append(name)
            self._write()

    def keep(self, recipe: Recipe) -> None:
        """Agree to the recipe by which the table was summarised, and to no other from now on."""
        if self.recipe is None:
            self._first = recipe
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            content = {"recipe": None if self._first is None else asdict(self._first), "requests": self._requests}
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)  # someone may have removed the folder
            write_whole(self._path, json.dumps(content).encode(), mode=0o600)
