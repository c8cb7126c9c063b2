"""Where algorithms run."""
