"""Tests of the report on figures written by hand. Run with `python -m unittest`; they need no package."""

import unittest

from peers.report import Result, write
from peers.scenarios import Figures
from peers.systems import SYSTEMS, System

EVERWATCH, CELERY = (next(it for it in SYSTEMS if it.name == name) for name in ("everwatch", "celery"))


def frozen(system: System, repetition: int, longest: float, doubled: int, seconds: float) -> Result:
    """The result of one repetition."""
    figures: Figures = {"held": 30, "moved": 30, "p50": longest / 2, "max": longest, "missing": 0}
    figures |= {"doubled": doubled, "doubled_max": seconds, "observed": 60.0}
    return Result(system.name, "frozen", repetition, 1.0, figures)


def line(text: str, title: str) -> str:
    """The row of a system in the table of frozen workers."""
    table = text.partition("## A worker is frozen")[2]
    return next(it for it in table.splitlines() if it.startswith(f"| {title} |"))


class Reporting(unittest.TestCase):
    """Each test is one report."""

    def test_rows_have_medians_and_ratios(self) -> None:
        """The median of three repetitions, compared with Everwatch's."""
        results = [frozen(EVERWATCH, it, 10.0, 0, 0.0) for it in (1, 2, 3)]
        results += [frozen(CELERY, it, longest, 30, 59.5) for it, longest in ((1, 90.0), (2, 150.0), (3, 160.0))]
        text = write(results, [EVERWATCH, CELERY], {}, 100)
        self.assertEqual(line(text, "Everwatch"), "| Everwatch | 5.00 s | 10.00 s | 1 | none | - | 0 | 3 |")
        expected = "| Celery | 75.00 s | 150.00 s | 15 | 30 of 30 | 60 s, still at the end | 0 | 3 |"
        self.assertEqual(line(text, "Celery"), expected)

    def test_failed_repetitions_are_named_and_not_counted(self) -> None:
        """A system without figures has no numbers."""
        failed = Result("celery", "frozen", 1, 1.0, None, "TimeoutError: too late")
        text = write([frozen(EVERWATCH, 1, 10.0, 2, 0.25), failed], [EVERWATCH, CELERY], {}, 100)
        self.assertEqual(line(text, "Everwatch"), "| Everwatch | 5.00 s | 10.00 s | 1 | 2 of 30 | 0.25 s | 0 | 1 |")
        self.assertEqual(line(text, "Celery"), "| Celery | - | - | - | - | - | - | 0 |")
        self.assertIn("- celery, frozen, repetition 1: TimeoutError: too late", text)


if __name__ == "__main__":
    unittest.main()
