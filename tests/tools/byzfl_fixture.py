"""Write tests/helpers/byzfl_values.json: what the library byzfl makes of fixed uploads.

Run it as `.venv-byzfl/bin/python tests/tools/byzfl_fixture.py`, in the environment that `make test-byzfl` makes.
"""

import json
import sys
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "helpers"


def main() -> None:
    """Write the file."""
    sys.path.insert(0, str(HELPERS))
    from byzfl_cases import byzfl_values

    (HELPERS / "byzfl_values.json").write_text(json.dumps(byzfl_values(), indent=1) + "\n")


if __name__ == "__main__":
    main()
