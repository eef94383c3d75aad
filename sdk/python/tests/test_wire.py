"""The wire against the golden messages of the reference implementation."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from everwatch import _commands as commands
from everwatch._clock import parse_duration, parse_timestamp, show_duration, timestamp
from everwatch._commands import AskLogs, Directives, read_command
from everwatch._inventory import Range, chunks, digest, digests
from everwatch._topology import Topology
from everwatch._wire import (
    Retry,
    RunReport,
    Unreadable,
    Work,
    WorkHeader,
    acquisitions,
    check_kind,
    check_name,
    check_pool,
    encode,
    epoch_of,
    finished,
    held,
    read_work,
    show_epoch,
    started,
)

GOLDEN = Path(__file__).parents[3] / "crates/core/tests/golden/v1"
A, B, D = UUID(int=10), UUID(int=11), UUID(int=13)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


COMMANDS: list[tuple[str, commands.Command]] = [
    ("revoke", commands.Revoke([(B, epoch_of(4, 0))])),
    ("crash-looping", commands.CrashLooping([B])),
    ("describe", commands.Describe(A, [B])),
    ("directives", commands.Direct(A, Directives(4, cordoned=True, draining=True, capacity=7))),
    ("hand_over", commands.HandOver(A, 10.0, "rebalance", [B], 3)),
    ("list-held", commands.ListHeld(A, [Range(None, B), Range()])),
    ("logs", AskLogs(7, str(D), B, (epoch_of(3, 2), 57), 100)),
    ("logs-newest", AskLogs(7, str(D), B, None, 100)),
    ("welcome", commands.Welcome(A, [(B, epoch_of(4, 0))])),
    ("welcome-crash-looping", commands.Welcome(A, [(B, epoch_of(4, 0))], crash_looping=[B])),
    (
        "welcome-directed",
        commands.Welcome(
            A,
            [(B, epoch_of(4, 0))],
            directives=Directives(4, cordoned=True, draining=True, capacity=7),
        ),
    ),
]


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_commands_are_read(name: str, command: commands.Command) -> None:
    assert read_command(golden(name)) == command


def test_checkpoints_are_read() -> None:
    content = {
        "service": str(A),
        "stored": [{"id": str(B), "epoch": 5, "number": 2}],
        "restored": [
            {"id": str(B), "epoch": 5, "checkpoint": None},
            {"id": str(D), "epoch": 6, "checkpoint": {"epoch": 4, "value": [1]}},
        ],
    }
    found = read_command(encode({"checkpoints": content}))
    assert found == commands.Checkpoints(A, [(B, 5, 2)], [(B, 5, None), (D, 6, (4, [1]))])


def test_the_time_of_the_database_is_read() -> None:
    at = 1_795_975_200_000
    assert read_command(encode({"time": timestamp(at)})) == commands.Time(at)
    assert read_command(encode({"time": "2026-11-29T18:00:00Z"})) == commands.Time(at)
    welcome = {"service": str(A), "revocations": []}
    for time, expected in ((timestamp(at), at), (None, None)):
        assert read_command(encode({"welcome": {**welcome, "time": time}})) == commands.Welcome(A, [], time=expected)
    for wrong in (7, None, "soon", {"at": timestamp(at)}):
        with pytest.raises(Unreadable, match="not a command `time`"):
            read_command(encode({"time": wrong}))


def test_a_command_of_a_newer_version_is_passed_over_and_garbage_is_named() -> None:
    assert read_command(encode({"dance": {"service": str(A)}})) is None
    bodies = [b"\xff", b"[]", b"{}", b'{"v":2,"body":{}}', b'{"v":1,"body":{"revoke":7}}', b"[" * 100_000]
    for body in bodies:
        with pytest.raises(Unreadable):
            read_command(body)


def test_a_work_message_is_read() -> None:
    read = read_work(golden("work"))
    assert isinstance(read, Work)
    assert (read.id, read.generation, read.kind, read.name) == (B, 3, "http", "o")
    assert (read.spec, read.labels, read.forbids_overlap, read.grace) == (
        {"url": "http://x/"},
        {"app": "x"},
        True,
        3.0,
    )
    assert read.retry == Retry("intervals", reset_after=None, delays=(60.0, 240.0))
    assert read.text == golden("work").decode()


def test_the_times_of_a_work_message_are_read_if_it_has_them() -> None:
    read = read_work(changed(attempt_timeout="1m 30s", finish_at="1970-01-01T00:00:07.250Z"))
    assert isinstance(read, Work)
    assert (read.attempt_timeout, read.finish_at) == (90.0, 7250)
    for without in (golden("work"), changed(attempt_timeout=None, finish_at=None)):
        read = read_work(without)
        assert isinstance(read, Work)
        assert (read.attempt_timeout, read.finish_at) == (None, None)


def test_the_time_for_which_an_execution_starts_is_read() -> None:
    for name, at in (("work-schedule", 1_700_000_000_009), ("work", None)):
        read = read_work(golden(name))
        assert isinstance(read, Work)
        assert read.scheduled_for == at


def test_the_namespace_is_read() -> None:
    for name, namespace in (("work-namespace", "team-a"), ("work", "default")):
        read = read_work(golden(name))
        assert isinstance(read, Work)
        assert read.namespace == namespace


def changed(**members: Any) -> bytes:
    return json.dumps(json.loads(golden("work")) | members).encode()


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"v": 3}, "message version 3 is unknown here"),
        ({"retry": {"kind": "lunar"}}, "cannot be read here: retry kind `lunar` is unknown here"),
        ({"grace": "soon"}, "cannot be read here: `soon` is not a duration"),
        ({"attempt_timeout": "soon"}, "cannot be read here: `soon` is not a duration"),
        ({"finish_at": "soon"}, "cannot be read here: `soon` is not a time"),
        ({"finish_at": 7}, "cannot be read here: `time` must be text"),
        ({"overlap": "perhaps"}, "cannot be read here: overlap `perhaps` is unknown here"),
        ({"kind": "NO"}, "cannot be read here: kind `NO` is not valid"),
    ],
)
def test_a_message_of_another_version_can_still_be_given_back(members: dict[str, Any], why: str) -> None:
    read = read_work(changed(**members))
    assert isinstance(read, WorkHeader)
    assert (read.id, read.generation) == (B, 3)
    assert read.why.startswith(why)


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"nonsense", b"[]", changed(id="x"), changed(generation=-1), b"[" * 99_999]
)
def test_garbage_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_work(body)


def reports() -> list[Any]:
    return [entry["report"] for entry in json.loads(golden("reports"))["body"]["reports"]["entries"]]


def test_events_are_written_as_the_reference_does() -> None:
    runs = [report["run"]["event"] for report in reports() if isinstance(report, dict) and "run" in report]
    assert held("redelivered") in runs
    assert started(1, timestamp(1_700_000_000_001)) in runs
    settling = [event for event in runs if RunReport(B, 1, event).settles]
    assert settling == ["stopped", "completed", {"failed": {"error": "e", "attempts": 4}}]
    holding = [RunReport(B, 1, event).type for event in runs if RunReport(B, 1, event).holds]
    assert holding == ["held", "started", "errored", "progress"]


def test_finished_is_a_settlement() -> None:
    report = RunReport(B, 1, finished(7250))
    assert report.event == {"finished": {"at": "1970-01-01T00:00:07.250Z"}}
    assert (report.type, report.settles, report.holds, digest(report)) == ("finished", True, False, 0)


def test_digests_are_those_of_the_reference() -> None:
    first = RunReport(UUID(int=1), epoch_of(1, 1), started(1, timestamp(0)))
    assert digest(first) == 1_085_913_248_453
    entry = RunReport(B, epoch_of(3, 2), started(1, timestamp(0)))
    told = json.loads(golden("inventory-digest"))["body"]["reports"]["entries"][0]["report"]
    assert {"inventory_digest": digests(2, [entry])} == told
    assert digest(RunReport(B, 1, "stopped")) == 0


def entry(number: int) -> RunReport:
    return RunReport(UUID(int=number), epoch_of(1, 0), started(1, timestamp(0)))


def test_chunks_contain_the_entries_of_the_requested_ranges_and_no_others() -> None:
    def span(after: int | None, upto: int | None) -> Range:
        return Range(None if after is None else UUID(int=after), None if upto is None else UUID(int=upto))

    asked = [span(9, 11), span(20, 20), span(499, None)]
    found = chunks(7, asked, [entry(number) for number in reversed(range(1500))])
    assert [(it["range"], len(it["entries"])) for it in found] == [
        (span(9, 11).json(), 2),
        (span(20, 20).json(), 0),
        (span(499, 999).json(), 500),
        (span(999, None).json(), 500),
    ]
    assert [(it["chunk"], it["chunks"]) for it in found] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    told = json.loads(golden("inventory-range"))["body"]["reports"]["entries"][0]["report"]
    assert {"inventory": chunks(2, [Range()], [])[0]} == told


def test_the_acquisitions_are_the_greater_of_both_headers() -> None:
    assert acquisitions({}) == 0
    assert acquisitions({"x-delivery-count": 3}) == 3
    assert acquisitions({"x-delivery-count": 1, "x-acquired-count": 4}) == 4
    assert acquisitions({"x-delivery-count": "many", "x-acquired-count": -1}) == 0
    assert (epoch_of(3, 2), show_epoch(12884901890)) == (12884901890, "3.2")


@pytest.mark.parametrize(
    ("observer", "queues"),
    [
        ("0190a1b2-0000-7000-8000-000000000001", [0, 1, 2, 3, 43]),
        ("0190a1b2-0000-7000-8000-000000000002", [0, 1, 2, 1, 21]),
        ("01939b3c-6f1e-7a55-9c41-5be2f0d7a3e8", [0, 1, 0, 1, 41]),
        ("01939b3c-6f1e-7a55-b7f3-0c9d84e6125f", [0, 1, 1, 3, 19]),
    ],
)
def test_an_observer_has_the_same_state_queue_in_every_implementation(observer: str, queues: list[int]) -> None:
    assert [Topology("p.", count).state_of(UUID(observer)) for count in (1, 2, 3, 4, 64)] == queues


def test_retries_follow_their_policy() -> None:
    assert [Retry().after(attempt, 1.0) for attempt in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert Retry().after(1 << 31, 0.0) == 30
    assert [Retry("intervals", delays=(60.0, 240.0)).after(attempt, 0.0) for attempt in (1, 2, 3)] == [60, 240, None]
    fixed = Retry.read({"kind": "fixed", "every": "1s", "attempts": 3})
    assert [fixed.after(attempt, 0.0) for attempt in (2, 3)] == [1, None]


def test_durations_and_times() -> None:
    texts = {"30s": 30.0, "5m": 300.0, "1h 30m": 5400.0, "1m30s": 90.0, "500ms": 0.5, "1s 500ms": 1.5, "0s": 0.0}
    assert {text: parse_duration(text) for text in texts} == texts
    for text in ("", "5", "-5s", "soon", "5 parsecs"):
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)
    shown = {"30s": 30.0, "5m": 300.0, "1h 30m": 5400.0, "24h": 86_400.0, "1s 500ms": 1.5, "0s": 0.0, "20µs": 2e-5}
    assert {show_duration(seconds): seconds for seconds in shown.values()} == shown
    times = {
        "2023-11-14T22:13:20.123Z": 1_700_000_000_123,
        "2023-11-14T23:13:20.123999999+01:00": 1_700_000_000_123,
        "1969-12-31t23:59:59.5z": -500,
    }
    assert {text: parse_timestamp(text) for text in times} == times
    for text in ("", "now", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "20231114T221320Z"):
        with pytest.raises(ValueError, match="is not a time"):
            parse_timestamp(text)
    assert timestamp(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert timestamp(1 << 62) == "9999-12-31T23:59:59.999Z"


def test_names_follow_their_rules() -> None:
    for name in ("a", "0", "A.b_c-9", "x" * 128):
        assert check_name(name) == name
    for name in ("", ".a", "a b", "ä", "x" * 129, "0196f0a0-0000-7000-8000-000000000000", "a\n"):
        with pytest.raises(ValueError, match="is not valid"):
            check_name(name)
    with pytest.raises(ValueError, match="pool"):
        check_pool("GPU")
    with pytest.raises(ValueError, match="kind"):
        check_kind("Price")


def test_each_queue_has_its_exchange() -> None:
    topology = Topology("p.", 2)
    commands = topology.commands_of("work", UUID(int=7))
    exchanges = {
        topology.work("work"): "p.work",
        commands: "p.commands.work",
        topology.state_queue(0): "p.reports",
        topology.state_queue(1): "p.reports",
        topology.heartbeats: "p.reports",
        topology.parked: "p.reports",
        topology.replies("7"): "p.reports",
    }
    assert {queue: topology.exchange_of(queue) for queue in exchanges} == exchanges
    assert topology.exchanges_with(topology.work("a")) == ["p.work", "p.commands.a"]
    assert topology.exchanges_with(commands) == ["p.commands.work"]
