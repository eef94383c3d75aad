"""The scenarios: each starts three workers and the tasks, injects a fault, and returns figures from the judge."""

import time
from collections.abc import Callable
from threading import Event

from peers import judge
from peers.systems import Stage

Figures = dict[str, float]

WORKERS = ["w1", "w2", "w3"]
START_SECONDS = 90.0
# How long tasks may take to run elsewhere. RabbitMQ's default heartbeat takes up to 180 s.
MOVE_SECONDS = 240.0
# How long the other workers have their tasks before a frozen one is thawed.
SETTLE_SECONDS = 5.0
# How long the records are watched after a thaw.
THAWED_SECONDS = 60.0
# How long a restarted worker has for receiving tasks.
JOIN_SECONDS = 30.0
# How long tasks run on a RabbitMQ whose acknowledgement timeout is 60 s: it checks once a minute.
TIMEOUT_SECONDS = 200.0


class StoppedError(Exception):
    """The run was interrupted."""


class Scenario:
    """A stage with its clock."""

    def __init__(self, stage: Stage, stop: Event, factor: float = 1.0) -> None:
        """The factor shortens all periods of observation, for a check of this program."""
        self.stage = stage
        self._stop = stop
        self._factor = factor

    def killed(self) -> Figures:
        """A worker is killed; later it is started again."""
        victim, held = self._begin()
        fault = _now()
        self.stage.workers.pop(victim).kill()
        figures = self._until_moved(victim, held, fault)
        began = _now()
        self.stage.start(victim)
        self._until("the restarted worker to be ready", START_SECONDS, lambda: self.stage.are_ready({victim}, began))
        joined = _now()
        self.stage.joined()
        self._pass(JOIN_SECONDS)
        end = _now()
        received = judge.started_on(self.stage.reader.update(), victim, began, joined + int(JOIN_SECONDS * 1000))
        return figures | {"received": len(received), "missing": self._missing(end)}

    def frozen(self) -> Figures:
        """A worker is frozen until its tasks run elsewhere, and then thawed."""
        victim, held = self._begin()
        fault = _now()
        self.stage.workers[victim].freeze()
        figures = self._until_moved(victim, held, fault)
        self._pass(SETTLE_SECONDS)
        thaw = _now()
        self.stage.workers[victim].thaw()
        self._pass(THAWED_SECONDS)
        end = _now()
        doubled = judge.doubled(self.stage.reader.update(), thaw)
        return figures | _doubled(doubled, (end - thaw) / 1000) | {"missing": self._missing(end)}

    def timed_out(self) -> Figures:
        """Nothing happens but that the broker's acknowledgement timeout passes."""
        self._begin()
        begin = _now()
        self._pass(TIMEOUT_SECONDS)
        end = _now()
        records = self.stage.reader.update()
        doubled = judge.doubled(records, begin)
        figures = {"restarted": len(judge.restarted(records)), "missing": self._missing(end)}
        return figures | _doubled(doubled, (end - begin) / 1000)

    def _begin(self) -> tuple[str, set[str]]:
        """Starts everything, and returns the worker with the most tasks, and these."""
        self.stage.prepare()
        for worker in WORKERS:
            self.stage.start(worker)
        self._until("the workers to be ready", START_SECONDS, lambda: self.stage.are_ready(set(WORKERS), 0))
        self.stage.publish()
        begun: set[str] = set()

        def all_run() -> bool:
            begun.update(it.task for it in self.stage.reader.update() if it.event == "start")
            return len(begun) == self.stage.tasks

        self._until("all tasks to run", START_SECONDS, all_run)
        self._pass(SETTLE_SECONDS)
        self.stage.check()
        running = judge.running(self.stage.reader.update(), _now())
        by_worker = {name: {task for task, workers in running.items() if name in workers} for name in WORKERS}
        victim = max(WORKERS, key=lambda name: len(by_worker[name]))
        return victim, by_worker[victim]

    def _until_moved(self, victim: str, held: set[str], fault: int) -> Figures:
        reader = self.stage.reader
        # From the beginning: tasks may have moved before the killed worker was reaped.
        left, seen = set(held), 0

        def moved() -> bool:
            nonlocal seen
            new = reader.update()[seen:]
            seen += len(new)
            left.difference_update(
                it.task for it in new if it.event == "start" and it.worker != victim and it.at >= fault
            )
            return not left

        self._until(None, MOVE_SECONDS, moved)
        delays = list(judge.moved_after(reader.records, held, victim, fault).values())
        figures: Figures = {"held": len(held), "moved": len(delays)}
        if delays:
            figures |= {"p50": judge.percentile(delays, 50), "max": max(delays)}
        return figures

    def _missing(self, at: int) -> int:
        return self.stage.tasks - len(judge.running(self.stage.reader.update(), at))

    def _pass(self, seconds: float) -> None:
        if self._stop.wait(seconds * self._factor):
            raise StoppedError

    def _until(self, what: str | None, seconds: float, holds: Callable[[], bool]) -> None:
        """Waits for a state. If it does not come: an error that names it, or none if it has no name."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                if what is None:
                    return
                raise TimeoutError(f"waited {seconds:.0f} s for {what}: see the logs in {self.stage.folder}")
            if self._stop.wait(0.2):
                raise StoppedError


def _now() -> int:
    return time.time_ns() // 1_000_000


def _doubled(doubled: dict[str, float], observed: float) -> Figures:
    return {"doubled": len(doubled), "doubled_max": max(doubled.values(), default=0.0), "observed": observed}
