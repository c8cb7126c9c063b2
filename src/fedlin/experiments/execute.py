"""An experiment from its first run to its tables; what is done is stored at once, so that it can go on later."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedlin.experiments.prepare import PreparedRun, first_seeds, own_code
from fedlin.experiments.run_folder import Facts, RunFolder
from fedlin.experiments.work_units import WorkUnits
from fedlin.experiments.workers import Workers, share_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Say = Callable[[str], None]


def execute(
    folder: RunFolder,
    prepared: list[PreparedRun],
    *,
    say: Say,
    progress: bool = False,
    workers: Callable[[Path], Workers] | None = None,
) -> None:
    """Tune and play what is not yet stored, then write the tables; `workers` makes those who share the work, if any."""
    facts, pictures = _facts(prepared)
    folder.begin(facts, own_code(folder.file))
    for known in facts.values():
        for note in known.get("notes", ()):
            say(f"prepared: {note}")
        if "f" in known["facts"]:
            say(f"f = {known['facts']['f']}")
    for name, picture in pictures.items():
        folder.store_picture(name, picture)
    for run in first_seeds(prepared):
        privacy = run.promise()
        if privacy is not None:
            searched = " The search for its step size is not counted." if run.planned.plan.tuned else ""
            say(f"{run.planned.label}: {privacy}.{searched}")
    units = WorkUnits(folder, prepared)
    missing = units.missing()
    if workers is None or not missing:
        for unit in missing:
            say(units.perform(unit, progress))
    else:
        share_out(missing, units.ready, partial(workers, folder.path), say)
    folder.write_tables()


def _facts(prepared: list[PreparedRun]) -> tuple[dict[str, Facts], dict[str, "Canvas"]]:
    """Facts of every problem, by what the file says of it, and pictures of how rows were split, by file name."""
    facts: dict[str, Facts] = {}
    pictures = {}
    for run in prepared:
        key, rows = run.planned.problem_key, run.built.rows
        if key in facts:
            continue
        facts[key] = {"fingerprint": run.fingerprint(), "facts": run.built.facts()}
        if rows is not None and rows.partition is not None:
            labels = rows.labels if rows.classes else None
            table, name = rows.partition.table(labels), f"partition-{len(facts)}.png"
            facts[key]["rows"] = {"heads": list(map(str, table)), "rows": table.astype(str).to_numpy().tolist()}
            facts[key]["notes"] = list(rows.notes)
            facts[key]["picture"] = name
            pictures[name] = rows.partition.plot(labels)
    return facts, pictures
