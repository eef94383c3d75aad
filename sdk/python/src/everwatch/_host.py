"""The machine of a service: its name, its memory, its cores."""

import contextlib
import os
import socket
from pathlib import Path

from everwatch._blocks import CAPACITY_MAX


def host_name() -> str:
    """The name of the host, as the kernel knows it."""
    return socket.gethostname()


def resident_bytes() -> int:
    """Resident memory of this process, in bytes; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def auto_capacity() -> int:
    """1,000 slots per core, but at most one for each 256 KiB of a quarter of the memory; from 1 to 200,000."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return auto_slots(cores, _memory_bytes())


def auto_slots(cores: int, memory: int) -> int:
    """The same for given cores and bytes of memory."""
    return min(max(min(cores * 1000, memory // 4 // (256 * 1024)), 1), CAPACITY_MAX)


def _memory_bytes() -> int:
    """The smaller of the machine's memory and the limit of the control group."""
    found = [1 << 30]
    with contextlib.suppress(OSError, ValueError):
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)
