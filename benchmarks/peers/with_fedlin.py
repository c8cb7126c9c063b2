"""fedlin, every measure of every round included; "FedLin by gradients" takes its local steps one by one."""

import fedlin
from benchmarks.peers.contract import Array, Clock, Task, run

BATCH = 0.5  # seconds a measured run should take


def play(task: Task, method: str, rounds: int, clock: Clock) -> Array:
    """One round, for the first result; then runs of many rounds, each of them a lap."""
    if task.loss == "logistic":
        problem: fedlin.problems.Problem = fedlin.problems.logistic(task.X, task.y, task.l2)
    else:
        closed = method != "FedLin by gradients"
        problem = fedlin.problems.regression(task.X, task.y, reduction="sum", closed_form=closed)
    plan = fedlin.Plan(task.tau, task.eta)

    def simulate(count: int) -> fedlin.Result:
        return fedlin.simulate(fedlin.fedlin(), problem, plan, count, iterates=False)

    simulate(1)
    clock.lap()
    x = simulate(rounds).x
    many = rounds
    for _ in range(3):  # a short run takes longer a round than a long one, so the first guess is too low
        many = max(rounds, int(BATCH * many / float(simulate(many).seconds[-1])))
    for _ in range(rounds):
        clock.start()
        simulate(many)
        clock.lap(many)
    return x


if __name__ == "__main__":
    run(play, "fedlin")
