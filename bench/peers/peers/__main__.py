"""Runs scenarios and writes the report. `bench/peers/run` starts the servers and installs the peers first."""

import argparse
import json
import os
import signal
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from types import FrameType

from peers import report, versions
from peers.report import Result
from peers.scenarios import Scenario, StoppedError
from peers.systems import HERE, SYSTEMS, System, stage


@dataclass(frozen=True)
class Job:
    """One scenario of one system."""

    system: System
    scenario: str
    repetition: int


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/peers/run", description="Compare Everwatch with other systems")
    names = list(dict.fromkeys(it.peer for it in SYSTEMS))
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"only these: {', '.join(names)} (default: all)")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each system, 1 to 100 (default 100)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, 1 to 20 (default 3)")
    parser.add_argument("--jobs", type=int, default=6, help="scenarios that run at once, 1 to 32 (default 6)")
    parser.add_argument(
        "--scenario", action="append", choices=["killed", "frozen", "timed_out"], help="only this scenario"
    )
    parser.add_argument("--report", type=Path, default=HERE / "results.md", help="where to write the report")
    parser.add_argument(
        "--figures", type=Path, help="add the figures to this file, and report all that it has, also from earlier calls"
    )
    parser.add_argument(
        "--short", action="store_true", help="shorten the periods of observation, to check this program"
    )
    parser.add_argument("--list-needs", action="store_true", help="print what the peers need")
    chosen = parser.parse_args()
    for name, most in (("tasks", 100), ("repeat", 20), ("jobs", 32)):
        if not 1 <= getattr(chosen, name) <= most:
            parser.error(f"--{name} must be from 1 to {most}")
    unknown = set(chosen.peers) - set(names)
    if unknown:
        parser.error(f"unknown peer {', '.join(sorted(unknown))}: choose from {', '.join(names)}")
    return chosen


def jobs_of(systems: list[System], chosen: argparse.Namespace) -> list[Job]:
    """All scenarios, repetition by repetition, those that take longest first."""
    scenarios = chosen.scenario or ["frozen", "timed_out", "killed"]
    return [
        Job(system, scenario, repetition)
        for repetition in range(1, chosen.repeat + 1)
        for scenario in scenarios
        for system in systems
        # The timeout is RabbitMQ's; it passes in the same way each time.
        if scenario != "timed_out" or (system.server == "rabbitmq" and repetition == 1)
    ]


def run_job(job: Job, folder: Path, urls: dict[str, str], chosen: argparse.Namespace, stop: Event) -> Result:
    """Runs a scenario to its end, whatever happens in it."""
    name = f"{job.system.name}-{job.scenario}-{job.repetition}"
    url = urls["timeout" if job.scenario == "timed_out" else job.system.server]
    queue = f"p{os.getpid()}_{name.replace('-', '_')}"
    it = stage(job.system, folder / name, queue, url, chosen.tasks)
    figures, error = None, ""
    try:
        if stop.is_set():
            raise StoppedError
        figures = getattr(Scenario(it, stop, 0.1 if chosen.short else 1.0), job.scenario)()
    except StoppedError:
        error = "interrupted"
    except Exception as failure:
        error = f"{type(failure).__name__}: {str(failure).splitlines()[0]}"
        traceback.print_exc()
    finally:
        it.close()
    load = os.getloadavg()[0]
    print(f"{name}: {error or figures} (load {load:.1f})", file=sys.stderr, flush=True)
    return Result(job.system.name, job.scenario, job.repetition, load, figures, error, chosen.jobs)


def collect(path: Path, results: list[Result]) -> list[Result]:
    """Adds the results to the file, and returns all that it has. The last one of each repetition counts."""
    with path.open("a") as file:
        file.writelines(json.dumps(asdict(it)) + "\n" for it in results)
    found = [Result(**json.loads(line)) for line in path.read_text().splitlines()]
    return list({(it.system, it.scenario, it.repetition): it for it in found}.values())


def main() -> int:
    """Returns 0 if every scenario succeeded."""
    chosen = arguments()
    systems = [it for it in SYSTEMS if not chosen.peers or it.peer in chosen.peers]
    if chosen.list_needs:
        print("\n".join({it.server for it in systems} | {it.peer for it in systems if it.peer == "everwatch"}))
        return 0
    urls = {
        name: os.environ.get(f"PEERS_{name.upper()}_URL", "")
        for name in ("rabbitmq", "timeout", "redis", "postgres", "nats")
    }
    stop = Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    folder = Path(tempfile.mkdtemp(prefix="scenarios.", dir=os.environ.get("PEERS_SCRATCH")))
    found = versions.of(systems, urls)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        pending = [pool.submit(run_job, job, folder, urls, chosen, stop) for job in jobs_of(systems, chosen)]
        results = [it.result() for it in pending]
    if stop.is_set():
        print("bench/peers/run: interrupted; no report was written", file=sys.stderr)
        return 130
    everything = collect(chosen.figures, results) if chosen.figures else results
    shown = [it for it in SYSTEMS if any(it.name == result.system for result in everything)]
    chosen.report.write_text(report.write(everything, shown, found, chosen.tasks))
    print(f"bench/peers/run: wrote {chosen.report}", file=sys.stderr)
    return 1 if any(it.figures is None for it in results) else 0


if __name__ == "__main__":
    sys.exit(main())
