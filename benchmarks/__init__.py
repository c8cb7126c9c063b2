"""Speed as a ratio against the plain NumPy loop, measured in the same run: `python -m benchmarks`."""
