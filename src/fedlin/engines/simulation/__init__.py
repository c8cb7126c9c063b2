"""One run, many runs, runs in chunks of clients: all clients in one process."""
