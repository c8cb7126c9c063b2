"""Experiments from a file: read, checked, tuned, run, stored and compared."""
