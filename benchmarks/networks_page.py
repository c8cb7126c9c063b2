"""The part of docs/performance.md on networks, from what `benchmarks.networks` measured."""

from typing import Any

from benchmarks.cifar.setting import Setting
from benchmarks.networks import ROWS
from benchmarks.tables import table

TEXT = """## Networks on a GPU, beside pfl-research

pfl-research's CIFAR-10 benchmark: {users:,} users of {images} images, {cohort} drawn a round, one pass in batches of
{batch} without replacement, dropout, evaluation on {test:,} images every {every} rounds. Images are random ones of that
shape, since only time is measured. Every row is a process of its own on an {device}, JAX {jax}, torch {torch}, pfl
{pfl}; `make bench-gpu` measures them. A round is a mean with evaluations. "From start" is the time of {rounds:,} rounds
from the start of the process, with imports, data and compilation; for rows that played fewer, their start and so many
times a round. Precision is each library's default, TF32 in products for JAX, unless a row says otherwise.

{rows}

- fedlin on the JAX network as any user writes it takes {over_bare:.2f} times what JAX written for this network by hand
  takes, and compiles for {compiled:.1f} s.
- FedLin takes {fedlin:.1f} times FedAvg's time and SCAFFOLD {scaffold:.1f} times; its states of {users:,} clients
  lie on the device, and on the host where they do not fit.
- A ResNet-18 with group normalisation ({parameters:.1f} million parameters) at 100 clients at once takes {ten:.1f}
  times the time of 10, and a cohort of 500 takes {more:.1f} times the time of {cohort}.
- Rows were measured together in these runs: {runs}.
"""


def write(results: dict[str, Any]) -> str:
    """The section; empty where nothing was measured."""
    setting = Setting()
    rows = {name: results[name] for name in ROWS if name in results and "failed" not in results[name]}
    if "fedlin" not in rows or "pfl" not in rows:
        return ""
    pfl, fedlin = rows["pfl"], rows["fedlin"]
    whole = _from_start(pfl, setting.rounds)
    lines = []
    for name, row in rows.items():
        peak = max(row.get("device peak") or 0, row.get("torch peak") or 0)
        own = row["cohort"] == setting.cohort and "parameters" not in row
        lines.append(
            (
                name,
                f"{1e3 * row['seconds a round']:.1f} ms",
                f"{pfl['seconds a round'] / row['seconds a round']:.1f}" if own else "–",
                f"{_from_start(row, setting.rounds):.0f} s" if own else "–",
                f"{whole / _from_start(row, setting.rounds):.1f}" if own else "–",
                f"{peak / 1e9:.1f} GB" if peak else "–",
            )
        )
    runs: dict[str, list[str]] = {}
    for name, row in rows.items():
        runs.setdefault(row["run"], []).append(name)
    a_round = {name: row["seconds a round"] for name, row in rows.items()}
    return TEXT.format(
        **setting._asdict(),
        device=fedlin["device"],
        jax=fedlin["jax"],
        torch=pfl["torch"],
        pfl=pfl["pfl"],
        runs="; ".join(f"{run} UTC: {', '.join(names)}" for run, names in runs.items()),
        rows=table(("", "a round", "times faster than pfl", "from start", "times faster", "device memory"), lines),
        over_bare=a_round["fedlin"] / a_round["bare JAX"],
        compiled=fedlin["compile seconds"],
        fedlin=a_round["fedlin's FedLin"] / a_round["fedlin"],
        scaffold=a_round["fedlin's SCAFFOLD"] / a_round["fedlin"],
        more=a_round["fedlin, cohort of 500"] / a_round["fedlin"],
        parameters=rows["ResNet-18, cohort of 100"]["parameters"] / 1e6,
        ten=a_round["ResNet-18, cohort of 100"] / a_round["ResNet-18, cohort of 10"],
    )


def _from_start(row: dict[str, Any], rounds: int) -> float:
    """Seconds of so many rounds from the start of the process: measured, or from fewer."""
    played = rounds if row["rounds"] >= rounds else 0
    if played and "status" in row:  # all rounds lie before its first lap
        return float(row["first"])
    if played:
        return float(row["whole"])
    before = row["first"] - (row["rounds"] * row["seconds a round"] if "status" in row else 0)
    return float(before + rounds * row["seconds a round"])
