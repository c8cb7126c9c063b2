"""Other packages at the same work: each in a process and a virtual environment of its own."""
