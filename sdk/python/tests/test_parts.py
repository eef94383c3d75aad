"""Rounds of reports, schemas, settings, logs, and the rules of the fence."""

import enum
import logging
import socket
import threading
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest

from everwatch import Context, observer
from everwatch._answers import parts
from everwatch._health import TURN_WITHIN, Health, serve
from everwatch._kinds import Registry
from everwatch._log import DroppingHandler
from everwatch._logs import LINE_MAX, Logs
from everwatch._outlet import sampled_trace
from everwatch._reporter import Said, rounds, said
from everwatch._rules import Proofs, ReconnectBackoff, limits
from everwatch._schema import SpecError, read_into, schema_of
from everwatch._session import VERSION
from everwatch._settings import SettingsError, load
from everwatch._topology import Topology
from everwatch._wire import BATCH_MAX, RunReport, Work, epoch_of

# With two state queues, number 2 has the first queue, numbers 1 and 9 have the second.
TWO = Topology("p.", 2)


def run(number: int) -> Said:
    return said({"run": {}}, observer=UUID(int=number))


def gone() -> Said:
    return said("service_gone")


def sizes(topology: Topology, batch: list[Said]) -> list[dict[int, int]]:
    return [{queue: len(reports) for queue, reports in it.items()} for it in rounds(topology, batch)]


def test_each_message_has_at_most_one_chunk_of_an_inventory() -> None:
    one, chunk = Topology("p."), said({"inventory": {}})
    assert sizes(one, [run(1), gone(), run(2)]) == [{0: 3}]
    batch = [chunk, chunk, gone(), chunk, run(1), gone()]
    assert sizes(one, batch) == [{0: 1}, {0: 1}, {0: 2}, {0: 2}]


def test_a_report_of_the_service_waits_for_all_earlier_reports_and_delays_all_later_ones() -> None:
    batch = [run(1), run(2), gone(), run(1), run(2)]
    assert sizes(TWO, batch) == [{1: 1, 0: 1}, {0: 1}, {1: 1, 0: 1}]


def test_the_reports_of_one_observer_keep_their_order_in_one_queue() -> None:
    batch = [run(1), run(2), run(9), run(1), run(2)]
    [only] = rounds(TWO, batch)
    places = {queue: [[it is said for it in batch].index(True) for said in reports] for queue, reports in only.items()}
    assert places == {0: [1, 4], 1: [0, 2, 3]}


def test_a_message_never_has_more_reports_than_allowed() -> None:
    batch = [run(1) for _ in range(BATCH_MAX + 1)] + [run(2)]
    assert sizes(TWO, batch) == [{1: BATCH_MAX}, {1: 1, 0: 1}]


def test_held_messages_are_divided_by_queue_and_by_size() -> None:
    def held(number: int, size: int) -> tuple[RunReport, Work]:
        work = Work(UUID(int=number), 1, "k", "n", {}, text="x" * size)
        return RunReport(work.id, epoch_of(1, 0), "stopped"), work

    found = parts(TWO, [held(1, 100_000), held(2, 10), held(9, 100_000), held(1, 10)])
    assert [len(entries) for _, entries in found] == [1, 1, 2]


def test_a_trace_is_passed_on_only_if_it_is_valid_and_sampled() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert sampled_trace({"traceparent": parent, "tracestate": "a=b"}) == {"traceparent": parent, "tracestate": "a=b"}
    assert sampled_trace({"traceparent": parent[:-2] + "00"}) is None
    assert sampled_trace({"traceparent": "nonsense"}) is None
    assert sampled_trace({}) is None


class Color(enum.Enum):
    """A choice."""

    RED = "red"


@dataclass
class Inner:
    """Nested."""

    port: int


@dataclass
class Spec:
    """What to watch."""

    url: str
    every: timedelta = timedelta(seconds=1)
    mode: Literal["fast", "slow"] = "fast"
    color: Color | None = None
    inner: Inner | None = None
    ratios: list[float] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


def test_a_dataclass_has_a_schema() -> None:
    schema = schema_of(Spec)
    assert (schema["required"], schema["title"], schema["description"]) == (["url"], "Spec", "What to watch.")
    assert schema["properties"]["mode"] == {"enum": ["fast", "slow"], "default": "fast"}
    assert schema["properties"]["inner"]["anyOf"][0]["required"] == ["port"]
    assert schema["properties"]["ratios"] == {"type": "array", "items": {"type": "number"}}
    with pytest.raises(TypeError, match="has no JSON schema"):
        schema_of(set)


def test_json_is_read_into_a_dataclass() -> None:
    spec = read_into(Spec, {"url": "u", "every": "1m", "color": "red", "inner": {"port": 1}, "ratios": [1], "new": 1})
    assert spec == Spec("u", timedelta(minutes=1), "fast", Color.RED, Inner(1), [1.0])


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({}, "/url: is required"),
        ({"url": 7}, "/url: must be text"),
        ({"url": "u", "every": 7}, "/every: must be a duration"),
        ({"url": "u", "every": "soon"}, "/every: `soon` is not a duration"),
        ({"url": "u", "mode": "odd"}, "/mode: must be one of fast, slow"),
        ({"url": "u", "inner": {"port": True}}, "/inner: fits none of: /inner/port: must be a whole number"),
        ({"url": "u", "ratios": [1, "x"]}, "/ratios/1: must be a number"),
        ([], "/: must be an object"),
    ],
)
def test_a_spec_that_does_not_fit_is_named(value: object, error: str) -> None:
    with pytest.raises(SpecError) as found:
        read_into(Spec, value)
    assert str(found.value).startswith(error)


def test_only_an_async_function_with_two_parameters_is_an_observer() -> None:
    with pytest.raises(TypeError, match="must be an `async def`"):
        observer("k")(lambda ctx, spec: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="kind `No` is not valid"):
        observer("No")

    async def one(ctx: Context) -> None:
        pass

    with pytest.raises(TypeError, match="two parameters"):
        observer("k")(one)  # type: ignore[arg-type]

    @observer("k")
    async def good(ctx: Context, spec: dict[str, Any]) -> None:
        pass

    assert Registry([good]).infos() == [{"name": "k", "schema": {"type": "object", "additionalProperties": {}}}]
    with pytest.raises(ValueError, match="offered twice"):
        Registry([good, good])


def test_files_of_tls_go_with_the_url() -> None:
    broker = {"EVERWATCH_BROKER__URL": "amqps://u:p@mq/%2f", "EVERWATCH_BROKER__TLS_CA_FILE": "/tls/ca.crt"}
    (url,) = load(None, broker).urls
    assert url.startswith("amqps://u:p@mq/%2F?") and "cafile=/tls/ca.crt" in url
    half = {**broker, "EVERWATCH_BROKER__TLS_CERT_FILE": "/tls/me.crt"}
    with pytest.raises(SettingsError, match="set both or neither"):
        load(None, half)
    (url,) = load(None, {**half, "EVERWATCH_BROKER__TLS_KEY_FILE": "/tls/me.key"}).urls
    assert "certfile=/tls/me.crt" in url and "keyfile=/tls/me.key" in url
    with pytest.raises(SettingsError, match="need amqps"):
        load(None, {**broker, "EVERWATCH_BROKER__URL": "amqp://mq"})


def test_settings_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "everwatch.toml"
    file.write_text(
        '[broker]\nprefix = "p."\nheartbeat = "10s"\n[service]\nlabels = { a = "b" }\n[manager]\nlisten = "x"\n'
    )
    environment = {
        "EVERWATCH_BROKER__URL": "amqp://a/%2f, amqps://b",
        "EVERWATCH_SERVICE__LABELS__ZONE": "z",
        "EVERWATCH_SERVICE__CAPACITY": "7",
        "EVERWATCH_SERVICE__START_RATES__HELLO": "2.5",
        "EVERWATCH_LOG__FILTER": "debug,lapin=off",
        "EVERWATCH_BIN": "not a key",
    }
    settings = load(str(file), environment)
    assert (settings.urls, settings.prefix, settings.heartbeat) == (("amqp://a/%2f", "amqps://b"), "p.", 10)
    assert (settings.labels, settings.capacity) == ({"a": "b", "zone": "z"}, 7)
    assert (settings.start_rates, settings.log_level) == ({"hello": 2.5}, "DEBUG")


def test_a_file_with_all_keys_of_services_in_rust_is_read() -> None:
    example = Path(__file__).parents[3] / "config" / "everwatch.toml"
    settings = load(str(example), {})
    assert (settings.heartbeat, settings.pool) == (5, "default")


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("BROKER__HEARTBEAT", "61s", "broker.heartbeat: must be whole seconds"),
        ("BROKER__HEARTBEAT", "3500ms", "broker.heartbeat: must be whole seconds"),
        ("BROKER__URL", "http://me:secret@host/", "broker.url: cannot read the broker URL http://me:***@host/"),
        ("BROKER__STATE_QUEUES", "65", "broker.state_queues: 65 must be from 1 to 64"),
        ("BROKER__COLOR", "red", "in the environment: unknown key `broker.color`"),
        ("CAKE__SIZE", "1", "in the environment: unknown section `cake`"),
        ("SERVICE__FENCE_GRACE", "5s", "service.fence_grace: broker.heartbeat plus"),
        ("SERVICE__CAPACITY", "many", "service.capacity: `many` is not a capacity"),
        ("SERVICE__CAPACITY", "200001", "service.capacity: `200001` is not a capacity"),
        ("SERVICE__NAME", "no name", "service.name: name `no name` is not valid"),
        ("SERVICE__POOL", "No", "service.pool: pool `No` is not valid"),
        ("SERVICE__POOL_SINGLE", "1", "service.pool_single: `1` must be true or false"),
        ("SERVICE__START_RATE", "-1", "service.start_rate: -1 must be from 0"),
        ("SERVICE__LOG_LINES", "10001", "service.log_lines: 10001 must be from 0 to 10000"),
        ("LOG__FILTER", "loud", "log.filter: `loud` has no level"),
    ],
)
def test_a_wrong_setting_is_named(key: str, value: str, error: str) -> None:
    with pytest.raises(SettingsError) as found:
        load(None, {f"EVERWATCH_{key}": value})
    assert str(found.value).startswith(error)


def test_a_service_of_a_single_pool_has_at_most_a_thousand_slots() -> None:
    single = {"EVERWATCH_SERVICE__POOL_SINGLE": "true"}
    assert load(None, single).pool_single
    assert load(None, single).capacity <= 1000
    with pytest.raises(SettingsError, match="1001 must be at most 1000 with service"):
        load(None, {**single, "EVERWATCH_SERVICE__CAPACITY": "1001"})


def texts(logs: Logs, number: int, after: tuple[int, int] | None = None, most: int = 1000) -> list[str]:
    return [line["text"] for line in logs.read(UUID(int=number), after, most)["lines"]]


def test_lines_are_kept_up_to_a_limit_and_read_after_a_place() -> None:
    logs = Logs(3)
    logs.write(UUID(int=1), 5, "log", "a\r\nb\nc\nd\n")
    assert texts(logs, 1) == ["b", "c", "d"]
    assert logs.read(UUID(int=1), (5, 1), 2)["more"] is True
    assert "missed" not in logs.read(UUID(int=1), (5, 1), 2)
    assert logs.read(UUID(int=1), (4, 9), 9)["missed"] == 1
    logs.write(UUID(int=1), 6, "stdout", "e")
    logs.write(UUID(int=1), 5, "log", "of a replaced run")
    assert texts(logs, 1, (5, 4)) == ["e"]
    logs.write(UUID(int=2), 5, "log", "ä" * LINE_MAX)
    [cut] = texts(logs, 2)
    assert len(cut.encode()) <= LINE_MAX
    assert cut.endswith("…")


def test_only_so_many_of_those_that_left_are_kept_and_none_that_is_held_is_dropped() -> None:
    logs = Logs(10)
    logs.write(UUID(int=1000), 5, "log", "held")
    logs.close(UUID(int=1000), 4)
    for number in range(105):
        logs.write(UUID(int=number), 5, "log", "left")
        logs.close(UUID(int=number), 5)
    assert [bool(texts(logs, number)) for number in (4, 5, 1000)] == [False, True, True]


def test_silence_counts_from_the_send_time_of_the_last_answered_proof() -> None:
    proofs = Proofs(1.0, 1.0)
    assert proofs.silence(6.0, 5.0) is None
    assert proofs.silence(6.001, 5.0) == "the broker has not answered for 5000 ms"
    proofs.answered = 2.0
    assert proofs.silence(6.001, 5.0) == "the broker has not confirmed for 5000 ms"
    assert (proofs.are_fresh(6.9, 5.0), proofs.are_fresh(7.0, 5.0)) == (True, False)
    assert limits(5.0, 2.0, 0) == (5.0, 2.0)
    assert limits(5.0, 2.0, 3) == (3, 1.5)


def test_short_sessions_lengthen_the_pause_up_to_a_limit() -> None:
    backoff = ReconnectBackoff()
    assert [backoff.on_lost(1, 1.0) for _ in range(4)] == [(2, True), (4, True), (8, True), (8, True)]
    assert backoff.on_lost(10, 1.0) == (2, True)
    assert ReconnectBackoff().on_lost(3600, 0.0) == (0.5, False)


class Blocked(logging.Handler):
    """A standard error that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.opened.wait(5)
        self.written.append(record.getMessage())


def test_a_log_that_nobody_reads_delays_nothing_and_says_what_it_dropped() -> None:
    target = Blocked()
    handler = DroppingHandler(target, most=10)
    began = time.monotonic()
    for number in range(100):
        handler.handle(logging.LogRecord("x", logging.INFO, "", 0, f"line {number}", None, None))
    handler.flush_within(0.1)
    assert time.monotonic() - began < 1
    dropped = handler.dropped
    assert dropped >= 80
    target.opened.set()
    handler.flush_within(5)
    assert target.written[0] == "line 0"
    assert target.written[1] == f"{dropped} log lines were dropped: standard error did not take them"
    assert len(target.written) == 101 - dropped


def fetched(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_served_beside_the_control_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    health, ready = Health(), False
    health.watch(lambda: ready)
    serve(address, health)
    assert fetched(address, "/livez") == (200, "alive\n")
    assert fetched(address, "/readyz")[0] == 503
    ready = True
    assert fetched(address, "/readyz?verbose") == (200, "ready\n")
    assert fetched(address, "/")[0] == 404
    later = time.monotonic() + TURN_WITHIN + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert health.answer("/livez") == (503, "the control loop has not turned for 11 s\n")
    with pytest.raises(OSError, match="in use"):
        serve(address, health)
    with pytest.raises(ValueError, match="is not an address with a port"):
        serve("somewhere", health)


def test_the_version_that_services_register_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION
