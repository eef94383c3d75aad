"""Writes the report: medians of the repetitions as Markdown tables, with ratios, versions and the machine."""

import os
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from peers.scenarios import JOIN_SECONDS, THAWED_SECONDS, TIMEOUT_SECONDS, Figures
from peers.systems import System


@dataclass(frozen=True)
class Result:
    """The figures of one scenario, or the error that ended it."""

    system: str
    scenario: str
    repetition: int
    load: float
    figures: Figures | None
    error: str = ""
    jobs: int = 1
    """How many scenarios ran at once."""


class Table:
    """The medians of the figures by system and scenario."""

    def __init__(self, results: Sequence[Result]) -> None:
        """Failed repetitions are left out; the report lists them."""
        figures: dict[tuple[str, str], list[Figures]] = defaultdict(list)
        for result in results:
            if result.figures is not None:
                figures[result.system, result.scenario].append(result.figures)
        self._figures = figures

    def get(self, system: str, scenario: str, name: str) -> float | None:
        """The median of a figure; None if no repetition has it."""
        values = [it[name] for it in self._figures[system, scenario] if name in it]
        return median_low(values) if values else None

    def worst(self, system: str, scenario: str) -> Figures:
        """The repetition in which tasks ran twice for the longest time, then the one with the most such tasks."""
        found = self._figures[system, scenario]
        return max(found, key=lambda it: (it["doubled_max"], it["doubled"]), default={})

    def repetitions(self, system: str, scenario: str) -> int:
        """How many repetitions succeeded."""
        return len(self._figures[system, scenario])


def write(results: Sequence[Result], systems: Sequence[System], versions: Mapping[str, str], tasks: int) -> str:
    """The whole report."""
    table = Table(results)
    loads = [it.load for it in results]
    most = max((it.jobs for it in results), default=1)
    lines = [
        "# Everwatch and its peers: results",
        "",
        "`./bench/peers/run` wrote this report. [README.md](README.md) describes the method and the settings of each system.",
        "",
        f"Each system ran {tasks} tasks on three workers. Up to {most} scenarios ran at once on a machine with "
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}); its load at their ends was "
        f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f}. "
        "Times of moves and *received* are medians of the repetitions; the other figures are those of the repetition "
        "in which tasks ran twice for the longest time. *max / Everwatch* divides the longest time by that of Everwatch.",
        "",
    ]
    lines += _failures(table, systems)
    lines += _timeouts(table, systems)
    lines += ["## Versions", "", "| part | version |", "|---|---|"]
    lines += [f"| {name} | {version} |" for name, version in versions.items()]
    failed = [it for it in results if it.figures is None]
    if failed:
        lines += ["", "## Scenarios that failed", ""]
        lines += [f"- {it.system}, {it.scenario}, repetition {it.repetition}: {it.error}" for it in failed]
    return "\n".join(lines) + "\n"


def _failures(table: Table, systems: Sequence[System]) -> list[str]:
    lines = [
        "## A worker is killed, and later restarted",
        "",
        "The tasks of the killed worker ran elsewhere after these times. Then the worker started again: *received* is "
        f"the number of tasks that started on it within {JOIN_SECONDS:.0f} s. For Everwatch, `everwatch rebalance apply` "
        "ran when the worker was ready; no other system has such a command.",
        "",
        "| system | p50 | max | max / Everwatch | received | repetitions |",
        "|---|---|---|---|---|---|",
    ]
    for it in systems:
        received = _count(table.get(it.name, "killed", "received"))
        lines.append(_row(table, it, "killed", _moves(table, it, "killed"), received))
    lines += [
        "",
        "## A worker is frozen, and thawed once its tasks run elsewhere",
        "",
        "*Twice* is the number of tasks that had two active runs at once after the thaw, and *for* is the longest such "
        f"time within {THAWED_SECONDS:.0f} s after the thaw. *Missing* is the number of "
        "tasks that no worker ran at the end.",
        "",
        "| system | p50 | max | max / Everwatch | twice | for | missing | repetitions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for it in systems:
        worst = table.worst(it.name, "frozen")
        missing = _count(worst.get("missing"))
        lines.append(_row(table, it, "frozen", _moves(table, it, "frozen"), _doubled(worst), missing))
    return [*lines, ""]


def _timeouts(table: Table, systems: Sequence[System]) -> list[str]:
    shown = [it for it in systems if table.repetitions(it.name, "timed_out")]
    if not shown:
        return []
    lines = [
        "## RabbitMQ's acknowledgement timeout passes",
        "",
        "No worker failed. RabbitMQ ran with `consumer_timeout = 60000` (one minute) instead of the default of 30 "
        f"minutes, and the tasks ran for {TIMEOUT_SECONDS:.0f} s.",
        "",
        "| system | tasks restarted | twice | for | missing | repetitions |",
        "|---|---|---|---|---|---|",
    ]
    for it in shown:
        worst = table.worst(it.name, "timed_out")
        restarted, missing = _count(worst.get("restarted")), _count(worst.get("missing"))
        lines.append(_row(table, it, "timed_out", restarted, _doubled(worst), missing))
    return [*lines, ""]


def _row(table: Table, system: System, scenario: str, *cells: str) -> str:
    return f"| {' | '.join([system.title, *cells, str(table.repetitions(system.name, scenario))])} |"


def _moves(table: Table, system: System, scenario: str) -> str:
    p50, longest, reference = (
        table.get(system.name, scenario, "p50"),
        table.get(system.name, scenario, "max"),
        table.get("everwatch", scenario, "max"),
    )
    held, moved = table.get(system.name, scenario, "held"), table.get(system.name, scenario, "moved")
    if p50 is None or longest is None:
        return "- | - | -"
    some = "" if held == moved else f" ({moved:.0f} of {held:.0f})"
    ratio = "-" if not reference else f"{longest / reference:.2g}"
    return f"{p50:.2f} s | {longest:.2f} s{some} | {ratio}"


def _doubled(figures: Figures) -> str:
    if not figures:
        return "- | -"
    number, longest = figures["doubled"], figures["doubled_max"]
    if number == 0:
        return "none | -"
    some = f"{number:.0f} of {figures['held']:.0f}" if "held" in figures else f"{number:.0f}"
    if longest == 0:
        return f"{some} | one record"
    # The first and the last record of a run may be a beat away from the ends of the observation.
    until_end = longest >= figures["observed"] - 2
    return f"{some} | {f'{longest:.0f} s, still at the end' if until_end else f'{longest:.2f} s'}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
