"""Has atheris look for bytes that a reader neither answers nor refuses: `python tests/tools/fuzz_decoders.py SECONDS`.

It is guided by which lines of fedlin an input reaches. `--keep` writes what reached new ones to the corpus, the
shortest of each target. Leaves with another status than 0 where something was found, and writes it to `--found`.
"""

import argparse
import base64
import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
MODULES = ("fedlin.engines.federation", "fedlin.engines.checkpoint", "fedlin.deploy", "fedlin.audit", "fedlin.payloads",
           "fedlin.data.column_summary", "fedlin.data.preparation", "fedlin.transports")  # fmt: skip
with atheris.instrument_imports(include=list(MODULES)):
    import decoders

LONGEST = 4096  # bytes of an input
KEPT = 12  # inputs of a target in the corpus


def keep(place: Path) -> None:
    """Write down the shortest of what is in a folder, by target."""
    messages: dict[str, list[str]] = {name: [] for name in decoders.NAMES}
    known = set(decoders.seeds())
    for data in sorted(
        {path.read_bytes() for path in place.iterdir()} - known - {b""}, key=lambda message: (len(message), message)
    ):
        name = decoders.NAMES[data[0] % len(decoders.NAMES)]
        if len(messages[name]) < KEPT:
            messages[name].append(base64.b85encode(data[1:]).decode())
    decoders.CORPUS.write_text(json.dumps(messages, indent=0) + "\n", encoding="utf-8")


def main() -> None:
    """Look for so many seconds, in a process of its own where the corpus is to be kept: atheris ends its process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--keep", action="store_true", help="write what led to new lines to the corpus")
    parser.add_argument("--found", type=Path, default=Path(tempfile.gettempdir()), help="folder for what was found")
    parser.add_argument("--scratch", type=Path, help="folder for inputs; a new one unless given")
    arguments = parser.parse_args()
    place = arguments.scratch or Path(tempfile.mkdtemp())
    if arguments.keep:
        command = [
            sys.executable,
            __file__,
            str(arguments.seconds),
            "--found",
            str(arguments.found),
            "--scratch",
            str(place),
        ]
        done = subprocess.run(command, check=False)
        keep(place)
        sys.exit(done.returncode)
    logging.disable()  # a site logs what it refuses
    for number, data in enumerate(decoders.corpus()):
        decoders.check(data)
        (place / f"{number:05d}").write_bytes(data)
    limits = [f"-max_total_time={arguments.seconds}", f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=4096"]
    options = [*limits, f"-artifact_prefix={arguments.found}/", "-seed=1", "-print_final_stats=1", str(place)]
    atheris.Setup([sys.argv[0], *options], decoders.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
