"""What keeps a client from being counted: recorded when it begins, when it changes and when it is over."""

from collections.abc import Mapping
from typing import Literal

from fedlin.engines.federation.replies import Refusal
from fedlin.engines.federation.round_log import RoundLog

FaultKind = Literal["silent", "refused", "rejected", "quarantined"]


class Faults:
    """The faults of the moment by client, and the events "fault" and "recovered" in the log, one for each change."""

    def __init__(self, log: RoundLog) -> None:
        self.log = log
        self.open: dict[str, tuple[FaultKind, str]] = {}  # its kind and why

    def report(self, played: int, kind: FaultKind, reasons: Mapping[str, str | Refusal], doing: str) -> None:
        """These clients failed in this way; `doing` is what the server does about it."""
        for name, reason in reasons.items():
            fault = kind, reason.why if isinstance(reason, Refusal) else reason  # a reference is another every time
            known, self.open[name] = self.open.get(name, ("", "")), fault
            if known != fault and not known[0] == kind == "silent":  # who is silent is so in several ways by turns
                self.log.note("fault", played, client=name, kind=kind, why=str(reason), doing=doing)

    def clear(self, played: int, names: Mapping[str, object]) -> None:
        """These clients were counted again."""
        for name in self.open.keys() & names.keys():
            kind, why = self.open.pop(name)
            self.log.note("recovered", played, client=name, kind=kind, why=why)

    def summary(self) -> str:
        """The faults of the moment in brackets; nothing where there are none."""
        faults = "; ".join(f"{name}: {why}" for name, (_, why) in sorted(self.open.items()))
        return f" ({faults})" if faults else ""
