"""`python -m fedlin` is the `fedlin` command."""

from fedlin.cli import app

if __name__ == "__main__":
    app(prog_name="fedlin")
