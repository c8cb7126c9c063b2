"""What can be collected depends on what is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/fedlin/torch"]
