"""What a site remembers of secure sums for as long as a run lasts: in which sum each upload counts, and its bound.

Two sums with the same upload, over different sites or with more or less noise, would tell what their difference is. So
it is on disk before a share leaves the site, and outlives its process. One norm bound a run: with others a server could
ask whether an upload is above this one or that one, and so learn its norm.
"""

import json
from pathlib import Path
from typing import NamedTuple

from fedlin.engines.checkpoint import open_folder, write_whole
from fedlin.errors import CheckpointError, WireError

FILE = "sums.json"
REMEMBERED = 16  # uploads, which is more than a client's folder can give again without computing them anew


class Sum(NamedTuple):
    """The one sum that an upload counts in."""

    names: list[str]
    terms: bytes


class SumRecords:
    """The records of one run, in the folder it has at the site; in memory alone where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.bound: float | None = None
        self.sums: dict[bytes, Sum] = {}
        if folder is not None and (folder / FILE).exists():
            try:
                saved = json.loads((folder / FILE).read_text(encoding="utf-8"))
                self.bound = saved["bound"]
                for upload, terms, names in saved["sums"]:
                    self.sums[bytes.fromhex(upload)] = Sum([str(name) for name in names], bytes.fromhex(terms))
            except (ValueError, KeyError, TypeError, RecursionError) as cause:
                raise CheckpointError(
                    f"{folder / FILE} cannot be read, and it says in which sums this site's uploads count: put back a "
                    "copy, or leave the run."
                ) from cause

    def check_bound(self, bound: float) -> None:
        """Refuse another norm bound than the run's first."""
        if self.bound is None:
            self.bound = bound
            self._write()
        if bound != self.bound:
            raise WireError(
                f"the norm bound of this run is {self.bound:g}, and {bound:g} was said: give a run with another one a "
                "name of its own."
            )

    def check(self, upload: bytes, asked: Sum) -> None:
        """Refuse another sum than the one that an upload counts in."""
        counted = self.sums.get(upload)
        if counted is None or counted == asked:
            return
        over = ", ".join(counted.names)
        if counted.names != asked.names:
            raise WireError(
                f"this upload counts in the sum over {over}, and another sum with it over {', '.join(asked.names)} "
                "would tell their difference."
            )
        raise WireError(f"this upload counts in a sum over {over} with other noise, scale or weights than these.")

    def settle(self, upload: bytes, counted: Sum) -> None:
        """Keep in which sum an upload counts, on disk before anything is sent."""
        self.check(upload, counted)
        if upload not in self.sums:
            self.sums[upload] = counted
            while len(self.sums) > REMEMBERED:
                del self.sums[next(iter(self.sums))]
            self._write()

    def _write(self) -> None:
        if self.folder is not None:
            sums = [(upload.hex(), one.terms.hex(), one.names) for upload, one in self.sums.items()]
            place = open_folder(self.folder, 0o700) / FILE
            write_whole(place, json.dumps({"bound": self.bound, "sums": sums}).encode(), mode=0o600)
