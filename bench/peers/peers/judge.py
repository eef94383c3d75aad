"""Judges records: pure functions from records to figures, the same for all peers.

A *run* of a task is active from its first record to its last one, except while it was silent for more than `SILENT`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from peers.records import Record

# A run that writes no record for this long, in milliseconds, is frozen or has ended.
SILENT = 2_000


@dataclass
class Run:
    """One run of a task, with the intervals in which it was active."""

    task: str
    worker: str
    name: str
    active: list[tuple[int, int]] = field(default_factory=list)

    @property
    def first(self) -> int:
        """When the run began."""
        return self.active[0][0]

    def is_active(self, at: int) -> bool:
        """Whether the run was active at this time, or fell silent less than `SILENT` before."""
        return any(start <= at <= end + SILENT for start, end in self.active)


def runs_of(records: Sequence[Record]) -> dict[str, list[Run]]:
    """The runs of each task, by their beginning."""
    runs: dict[tuple[str, str, str], Run] = {}
    for record in sorted(records, key=lambda it: it.at):
        if record.event == "ready":
            continue
        key = (record.task, record.worker, record.run)
        run = runs.setdefault(key, Run(*key))
        if run.active and record.at - run.active[-1][1] <= SILENT:
            run.active[-1] = (run.active[-1][0], record.at)
        else:
            run.active.append((record.at, record.at))
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs.values(), key=lambda it: it.first):
        by_task[run.task].append(run)
    return dict(by_task)


def running(records: Sequence[Record], at: int) -> dict[str, set[str]]:
    """The tasks that run at this time, with the workers that run them."""
    found = {task: {run.worker for run in runs if run.is_active(at)} for task, runs in runs_of(records).items()}
    return {task: workers for task, workers in found.items() if workers}


def ready(records: Sequence[Record]) -> set[str]:
    """The workers that accept tasks."""
    return {record.worker for record in records if record.event == "ready"}


def moved_after(records: Sequence[Record], tasks: set[str], worker: str, fault: int) -> dict[str, float]:
    """The seconds from the fault until each of the tasks began on another worker; tasks that did not are missing."""
    delays = {}
    for task, runs in runs_of(records).items():
        begun = [run.first for run in runs if run.worker != worker and run.first >= fault]
        if task in tasks and begun:
            delays[task] = (min(begun) - fault) / 1000
    return delays


def doubled(records: Sequence[Record], since: int) -> dict[str, float]:
    """The tasks of which two or more runs were active at once after `since`, with the seconds for which they were.

    A run that wrote a single record while another one was active counts with 0 seconds: its code did run.
    """
    found = {task: _together(runs, since) for task, runs in runs_of(records).items()}
    return {task: seconds for task, seconds in found.items() if seconds is not None}


def _together(runs: Sequence[Run], since: int) -> float | None:
    """The seconds for which at least two of the runs were active; None if they never were."""
    spans = [(max(start, since), end) for run in runs for start, end in run.active if end >= since]
    # At the same time, beginnings come first: spans that touch were active at once.
    changes = sorted([(start, 0) for start, _ in spans] + [(end, 1) for _, end in spans])
    active, begun, total, met = 0, 0, 0, False
    for at, is_end in changes:
        if is_end and active == 2:
            total += at - begun
        active += -1 if is_end else 1
        if not is_end and active == 2:
            begun, met = at, True
    return total / 1000 if met else None


def started_on(records: Sequence[Record], worker: str, since: int, until: int) -> set[str]:
    """The tasks of which a run began on the worker in this time."""
    return {
        run.task
        for runs in runs_of(records).values()
        for run in runs
        if run.worker == worker and since <= run.first <= until
    }


def restarted(records: Sequence[Record]) -> set[str]:
    """The tasks that began more than once."""
    return {task for task, runs in runs_of(records).items() if len(runs) > 1}


def percentile(values: Sequence[float], percent: int) -> float:
    """The lowest of the values that is not lower than this share of them."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
