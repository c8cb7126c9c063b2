"""The plain NumPy loop."""

from benchmarks import reference
from benchmarks.peers.contract import Array, Clock, Task, run


def work_of(task: Task) -> reference.Work:
    """The task for a NumPy loop."""
    if task.loss == "logistic":
        gradient = reference.logistic(task.X, task.y, task.l2)
    else:
        gradient = reference.least_squares(task.X, task.y)
    return reference.Work(gradient, task.tau, task.eta)


def play(task: Task, method: str, rounds: int, clock: Clock) -> Array:
    """Round after round."""
    x: Array = 0 * task.X[0, 0]
    steps = reference.METHODS[method](work_of(task), x)
    clock.start()
    for _ in range(rounds):
        x = next(steps)
        clock.lap()
    return x


if __name__ == "__main__":
    run(play, "numpy")
