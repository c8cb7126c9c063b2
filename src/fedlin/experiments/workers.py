"""Processes that share the units of an experiment: on this machine, or as actors of a Ray cluster.

Each worker opens the experiment's folder, builds its problems itself and stores what it does there, as a single process
would: the same programs on as many devices give the same bits. A worker that dies is replaced, and its unit goes on
from its last save.
"""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedlin.errors import ArgumentError, FedLinError
from fedlin.experiments.work_units import Unit, WorkUnits

DEATHS = 3  # of workers at one unit, after which it is given up
RayCluster = tuple[Any, bool]  # the module, connected, and whether that is to end with the work
PATIENCE = 60.0  # seconds in which a worker that is asked to end has to save its run


class WorkerAnswer(NamedTuple):
    """What became of a unit: a line on how it ended, the error that ended it, or neither where its worker died."""

    unit: Unit
    line: str = ""
    error: BaseException | None = None
    died: bool = False


class Workers(Protocol):
    """Some processes, each with at most one unit at a time."""

    def free(self) -> bool:
        """Whether one of them has nothing to do."""

    def give(self, unit: Unit) -> None:
        """Hand a unit to a free one."""

    def next(self) -> WorkerAnswer:
        """Wait for the next answer; a worker that died has been replaced."""

    def close(self) -> None:
        """Let all of them save what they are at, and end."""


def share_out(
    missing: Sequence[Unit], ready: Callable[[Unit], bool], make: Callable[[], Workers], say: Callable[[str], None]
) -> None:
    """Have workers do all units, each once what it builds on is there."""
    waiting, running, deaths = list(missing), 0, Counter[Unit]()
    workers = make()
    try:
        while waiting or running:
            while workers.free() and (unit := next(filter(ready, waiting), None)) is not None:
                waiting.remove(unit)
                workers.give(unit)
                running += 1
            answer = workers.next()
            running -= 1
            if answer.error is not None:
                raise answer.error
            if answer.died:
                deaths[answer.unit] += 1
                if deaths[answer.unit] == DEATHS:
                    raise FedLinError(
                        f"{DEATHS} workers died at run {answer.unit.number}, perhaps for want of memory: try fewer."
                    )
                say(f"a worker died at run {answer.unit.number}: another goes on with it")
                waiting.insert(0, answer.unit)
            else:
                say(answer.line)
    finally:
        workers.close()


def open_units(folder: Path) -> WorkUnits:
    """The units of an experiment as another process sees them."""
    from fedlin.experiments.prepare import prepare
    from fedlin.experiments.run_folder import RunFolder

    opened = RunFolder.open(folder)
    return WorkUnits(opened, prepare(opened.file))


def _work(folder: Path, inbox: Connection) -> None:
    """A worker's life: units come, answers go; None ends it."""
    os.environ.setdefault("PJRT_NPROC", "1")  # XLA's threads: the workers take all cores together already
    try:
        units = open_units(folder)
        while (unit := inbox.recv()) is not None:
            inbox.send(units.perform(unit))
    except KeyboardInterrupt:  # the run is saved
        os._exit(130)
    except EOFError:  # whoever asked is gone
        os._exit(1)
    except Exception as error:
        inbox.send(error)


class _Worker(NamedTuple):
    process: Any
    line: Connection


class LocalWorkers:
    """Processes on this machine."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
        self._idle = [self._start() for _ in range(jobs)]
        self._busy: dict[int, tuple[_Worker, Unit]] = {}

    def _start(self) -> _Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._folder, there), daemon=True)
        process.start()
        there.close()
        return _Worker(process, here)

    def free(self) -> bool:
        return bool(self._idle)

    def give(self, unit: Unit) -> None:
        worker = self._idle.pop()
        self._busy[worker.line.fileno()] = (worker, unit)
        if worker.process.is_alive():
            worker.line.send(unit)

    def next(self) -> WorkerAnswer:
        lines = [worker.line for worker, _ in self._busy.values()]
        line: Any = wait(lines)[0]
        worker, unit = self._busy.pop(line.fileno())
        try:
            answer = line.recv()
        except EOFError:
            worker.process.join()
            if worker.process.exitcode == 130:
                return WorkerAnswer(unit, error=KeyboardInterrupt())
            self._idle.append(self._start())
            return WorkerAnswer(unit, died=True)
        self._idle.append(worker)
        return WorkerAnswer(unit, error=answer) if isinstance(answer, BaseException) else WorkerAnswer(unit, answer)

    def close(self) -> None:
        for worker in self._idle:
            if worker.process.is_alive():
                worker.line.send(None)
        for worker, _ in self._busy.values():
            if worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGINT)  # it saves its run and ends
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()


class _Actor:
    """A worker of a Ray cluster."""

    def __init__(self, folder: str) -> None:
        self._units = open_units(Path(folder))

    def perform(self, unit: tuple[Any, int]) -> str:
        return self._units.perform(Unit(*unit))


class RayWorkers:
    """Actors of a Ray cluster, whose machines all see the experiment's folder and data; a GPU each if there are any."""

    def __init__(self, folder: Path, cluster: RayCluster, jobs: int | None) -> None:
        self._ray, self._started = cluster
        ray: Any = self._ray  # it gives its functions no types
        resources = ray.cluster_resources()
        count = jobs or int(resources.get("GPU", 0)) or int(resources.get("CPU", 1))
        gpus = min(1.0, resources.get("GPU", 0) / count)
        actor: Any = ray.remote(num_cpus=1, num_gpus=gpus)(_Actor)
        self._make: Callable[[], Any] = lambda: actor.remote(str(folder.resolve()))
        self._idle = [self._make() for _ in range(count)]
        self._busy: dict[Any, tuple[Any, Unit]] = {}

    def free(self) -> bool:
        return bool(self._idle)

    def give(self, unit: Unit) -> None:
        actor = self._idle.pop()
        self._busy[actor.perform.remote(tuple(unit))] = (actor, unit)

    def next(self) -> WorkerAnswer:
        (call,), _ = self._ray.wait(list(self._busy), num_returns=1)
        actor, unit = self._busy.pop(call)
        try:
            line = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:
            cause = error.__cause__ if isinstance(error.__cause__, FedLinError) else None
            if cause is not None:
                return WorkerAnswer(unit, error=cause)
            self._idle.append(self._make())
            return WorkerAnswer(unit, died=True)
        except self._ray.exceptions.RayTaskError as error:
            return WorkerAnswer(unit, error=error.cause if isinstance(error.cause, Exception) else error)
        self._idle.append(actor)
        return WorkerAnswer(unit, line)

    def close(self) -> None:
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


def choose_workers(jobs: int | None, address: str | None) -> Callable[[Path], Workers] | None:
    """Who shares the work in a folder: nobody, processes, or a Ray cluster; it has to answer now."""
    if address is not None:
        from fedlin.transports.ray import connect_ray

        cluster = connect_ray(address, jobs)
        return lambda folder: RayWorkers(folder, cluster, jobs)
    if jobs is None or jobs == 1:
        return None
    if jobs > (most := 8 * (os.cpu_count() or 1)):
        raise ArgumentError(f"--jobs {jobs} is not allowed: give at most {most} on this machine.")
    return lambda folder: LocalWorkers(folder, jobs)
