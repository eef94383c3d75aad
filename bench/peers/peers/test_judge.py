"""Tests of the judge on records written by hand. Run with `python -m unittest`; they need no package."""

import tempfile
import unittest
from pathlib import Path

from peers import judge
from peers.records import Reader, Record


def run(task: str, worker: str, name: str, *spans: tuple[int, int]) -> list[Record]:
    """The records of a run that was active in these spans, in milliseconds."""
    times = [at for start, end in spans for at in range(start, end + 1, 250)]
    return [Record(at, "start" if at == times[0] else "beat", task, worker, name) for at in times]


class Judging(unittest.TestCase):
    """Each test is one history."""

    def test_a_killed_worker_is_replaced(self) -> None:
        """Two tasks of the killed worker move, the third was elsewhere."""
        records = run("1", "a", "r1", (0, 5_000)) + run("2", "a", "r2", (0, 5_000)) + run("3", "b", "r3", (0, 20_000))
        held = {task for task, workers in judge.running(records, 5_000).items() if "a" in workers}
        self.assertEqual(held, {"1", "2"})
        self.assertEqual(judge.moved_after(records, held, "a", 5_000), {})
        records += run("1", "b", "r4", (6_000, 20_000)) + run("2", "b", "r5", (9_500, 20_000))
        self.assertEqual(judge.moved_after(records, held, "a", 5_000), {"1": 1.0, "2": 4.5})
        self.assertEqual(judge.doubled(records, 0), {})
        self.assertEqual(judge.restarted(records), {"1", "2"})

    def test_a_task_that_restarts_on_the_same_worker_has_not_moved(self) -> None:
        """Only a run elsewhere counts."""
        records = run("1", "a", "r1", (0, 5_000)) + run("1", "a", "r2", (6_000, 9_000))
        self.assertEqual(judge.moved_after(records, {"1"}, "a", 5_000), {})

    def test_a_run_that_goes_on_after_the_thaw_counts_as_doubled(self) -> None:
        """The time before the thaw does not count, because a frozen run does nothing."""
        records = run("1", "a", "r1", (0, 5_000), (40_000, 50_000)) + run("1", "b", "r2", (15_000, 60_000))
        self.assertEqual(judge.doubled(records, 40_000), {"1": 10.0})
        self.assertEqual(judge.doubled(records, 45_000), {"1": 5.0})
        self.assertEqual(judge.doubled(records, 50_001), {})

    def test_a_single_record_after_the_thaw_counts(self) -> None:
        """The code ran twice, if only for an instant."""
        records = run("1", "a", "r1", (0, 5_000), (40_000, 40_000)) + run("1", "b", "r2", (15_000, 60_000))
        self.assertEqual(judge.doubled(records, 40_000), {"1": 0.0})

    def test_two_runs_on_one_worker_count_as_doubled(self) -> None:
        """A worker that receives a task that it still runs runs it twice."""
        records = run("1", "a", "r1", (0, 10_000)) + run("1", "a", "r2", (6_000, 10_000))
        self.assertEqual(judge.doubled(records, 0), {"1": 4.0})

    def test_three_runs_at_once_count_once(self) -> None:
        """The time is that in which at least two were active."""
        records = (
            run("1", "a", "r1", (0, 6_000)) + run("1", "b", "r2", (1_000, 3_000)) + run("1", "c", "r3", (2_000, 5_000))
        )
        self.assertEqual(judge.doubled(records, 0), {"1": 4.0})

    def test_runs_that_follow_each_other_are_not_doubled(self) -> None:
        """A task that moves in an orderly way runs once."""
        records = (
            run("1", "a", "r1", (0, 5_000)) + run("1", "b", "r2", (5_001, 9_000)) + run("1", "a", "r3", (9_100, 9_600))
        )
        self.assertEqual(judge.doubled(records, 0), {})

    def test_a_silent_task_does_not_run(self) -> None:
        """A task is missing once nothing wrote for longer than the limit."""
        records = run("1", "a", "r1", (0, 5_000))
        self.assertEqual(judge.running(records, 5_000 + judge.SILENT), {"1": {"a"}})
        self.assertEqual(judge.running(records, 5_001 + judge.SILENT), {})

    def test_tasks_of_an_added_worker(self) -> None:
        """Only runs that begin there in time count."""
        records = (
            run("1", "c", "r1", (0, 5_000))
            + run("2", "c", "r2", (8_000, 9_000))
            + run("3", "c", "r3", (40_000, 41_000))
        )
        self.assertEqual(judge.started_on(records, "c", 6_000, 36_000), {"2"})

    def test_percentiles(self) -> None:
        """The median of an even number of values is the lower one."""
        self.assertEqual(judge.percentile([3.0, 1.0, 2.0, 4.0], 50), 2.0)
        self.assertEqual(judge.percentile([3.0, 1.0, 2.0, 4.0], 100), 4.0)
        self.assertEqual(judge.percentile([7.0], 50), 7.0)

    def test_a_line_that_is_still_being_written_waits(self) -> None:
        """The reader returns whole lines only, each once."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "records"
            reader = Reader(path)
            self.assertEqual(reader.update(), [])
            path.write_text("1 ready - a -\n2 start 1 a r")
            self.assertEqual(judge.ready(reader.update()), {"a"})
            path.write_text("1 ready - a -\n2 start 1 a r1\n")
            self.assertEqual(reader.update(), [Record(1, "ready", "-", "a", "-"), Record(2, "start", "1", "a", "r1")])


if __name__ == "__main__":
    unittest.main()
