"""Write how the package is built, in numbers, into docs/contributors.md: `python tests/tools/structure_page.py COMMIT`.

Beside today's files stand those of an earlier commit, by default the one before the package was put in order.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from structure import facts
from ten_changes import CHANGES, make

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributors.md"
BEGIN, END = "<!-- structure: begin -->\n", "<!-- structure: end -->\n"
FORMER = "994f4f3"


def table(former: Path, commit: str) -> str:
    """The section's text."""
    then, now = facts(former), facts(ROOT)
    rows = [f"| | at {commit} | now |", "|---|---|---|", *(f"| {name} | {then[name]} | {now[name]} |" for name in now)]
    rows += ["", "| change | files of the package | lines | works now | the same code then |", "|---|---|---|---|---|"]
    for change in CHANGES:
        gained, outcome = make(change, ROOT / "src" / "fedlin")
        _, earlier = make(change, former / "src" / "fedlin")
        former_outcome = "works" if earlier == "works" else "does not work"
        rows.append(f"| {change.name} | {len(gained)} | {sum(gained.values())} | {outcome} | {former_outcome} |")
        print(rows[-1], flush=True)
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the section."""
    commit = sys.argv[1] if len(sys.argv) > 1 else FORMER
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        text = table(Path(folder), commit)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + text + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
