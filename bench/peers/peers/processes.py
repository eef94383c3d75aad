"""Starts processes, and signals them with all their descendants, as a host that dies or freezes does."""

import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def _settings(env: Mapping[str, str], output: IO[bytes], cwd: Path) -> dict[str, Any]:
    """The settings of every process: no input, and all output in the log."""
    return {"env": {**os.environ, **env}, "stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "cwd": cwd}


class Tree:
    """A process with its descendants."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path) -> None:
        """Starts the command in a session of its own, with its output in the log."""
        with log.open("ab") as output:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command, start_new_session=True, **_settings(env, output, cwd)
            )
        self._log = log
        self._frozen: list[int] = []

    def check(self) -> None:
        """Raises an error if the process has ended."""
        code = self._process.poll()
        if code is not None:
            tail = self._log.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"{self._process.args!r} ended with {code}: its last output was\n{tail}")

    def kill(self) -> None:
        """Kills all processes of the tree at once: stops them first, so that none starts another."""
        self.freeze()
        for pid in self._frozen:
            _send(pid, signal.SIGKILL)
        self._process.wait(timeout=10)

    def freeze(self) -> None:
        """Stops all processes of the tree."""
        self._frozen = []
        while new := [pid for pid in self._pids() if pid not in self._frozen]:
            for pid in new:
                _send(pid, signal.SIGSTOP)
            self._frozen += new

    def thaw(self) -> None:
        """Lets the stopped processes go on, the first of them first."""
        for pid in self._frozen:
            _send(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        if self._process.returncode is not None:
            return []
        children = defaultdict(list)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    # The name of the program, in parentheses, may contain spaces.
                    children[int((entry / "stat").read_text().rpartition(")")[2].split()[1])].append(int(entry.name))
        found, left = [], [self._process.pid]
        while left:
            found.append(pid := left.pop(0))
            left += children[pid]
        return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def run(command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path, timeout: float = 60) -> None:
    """Runs a command to its end. Raises an error if it fails or takes too long."""
    with log.open("ab") as output:
        subprocess.run(command, check=True, timeout=timeout, **_settings(env, output, cwd))
