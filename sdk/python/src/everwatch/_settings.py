"""The configuration of a service: defaults < file < environment, with the same keys as services in Rust.

Unknown keys are refused. The sections ``[store]``, ``[manager]``, ``[auth]`` and ``[telemetry]`` belong to other
programs.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everwatch._blocks import BLOCK_MAX, CAPACITY_MAX
from everwatch._broker_errors import ConnectError, read_url
from everwatch._clock import parse_duration
from everwatch._host import auto_capacity, host_name
from everwatch._logs import LINES_MAX
from everwatch._secrets import Secrets
from everwatch._signature import Verifier
from everwatch._topology import STATE_QUEUES_MAX
from everwatch._wire import WEIGHT_MAX, check_kind, check_name, check_pool

Json = Any
_DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/%2f"
_KEYS = {
    "broker": {
        "url",
        "url_file",
        "prefix",
        "state_queues",
        "heartbeat",
        "management_url",
        "management_url_file",
        "tls_ca_file",
        "tls_cert_file",
        "tls_key_file",
        # Only managers read it.
        "sign_key_file",
        "verify_keys_file",
    },
    "service": {
        "name",
        "pool",
        "pool_single",
        "capacity",
        "weight_max",
        "labels",
        "heartbeat_interval",
        "fence_grace",
        "drain_timeout",
        "start_rate",
        "start_rates",
        "log_lines",
        "threads",
        "listen",
        "secrets_dir",
        "secrets_env",
        # Services in Rust use these. One file may be for services in both languages.
        "stall_limit",
        "memory_limit",
        "log_dir",
        "exec",
        "files",
        "http",
        "postgres",
    },
    "log": {"filter", "format"},
}
_OTHERS = ("store", "manager", "auth", "telemetry")
# The files of TLS, and the parameters by which the client library takes them; it reads them for each connection.
_TLS = {"tls_ca_file": "cafile", "tls_cert_file": "certfile", "tls_key_file": "keyfile"}


class SettingsError(ValueError):
    """What is wrong with the configuration: the key and the rule."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one service. Times are in seconds."""

    name: str
    # The nodes of one cluster, tried in order, as they were at the start.
    urls: tuple[str, ...] = (_DEFAULT_URL,)
    # The section [broker] if the URLs are in a file, which may get a new password.
    broker: dict[str, Json] | None = None
    prefix: str = "everwatch."
    state_queues: int = 1
    # Of the AMQP connections: whole seconds from 3 to 14. Also the silence of the broker that fences.
    heartbeat: int = 5
    pool: str = "default"
    # Whether the pool was created as a single pool.
    pool_single: bool = False
    # The number of slots, from 0 to 200,000; at most 1,000 in a single pool.
    capacity: int = 1000
    # The greatest weight of an observer that it takes: 1 to 1000, and at most its capacity.
    weight_max: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    heartbeat_interval: float = 5.0
    # The time that code has to stop after a fence.
    fence_grace: float = 0.5
    # How long the service may take to hand over its observers when it stops.
    drain_timeout: float = 20.0
    # Starts per second, over all kinds and of single kinds; 0: no limit.
    start_rate: float = 0.0
    start_rates: dict[str, float] = field(default_factory=dict)
    # Log lines to keep for each observer, from 0 to 10,000.
    log_lines: int = 100
    log_level: str = "INFO"
    # The address of /livez and /readyz; empty: none.
    listen: str = ""
    # The secrets that specs may refer to.
    secrets: Secrets = field(default_factory=Secrets)
    # Verifies that work and commands are from managers; None: nothing is verified.
    verifier: Verifier | None = None

    def current_urls(self) -> tuple[str, ...]:
        """Reads the file with the URLs again, if there is one.

        Raises:
            SettingsError: the file cannot be used.
        """
        return self.urls if self.broker is None else _urls(self.broker)


def load(
    file: str | None = None, environment: Mapping[str, str] | None = None, *, default_file: bool = True
) -> Settings:
    """Reads the file (or that of EVERWATCH_CONFIG) and the environment (EVERWATCH_SECTION__KEY).

    Raises:
        SettingsError: names the key and the rule.
    """
    environment = os.environ if environment is None else environment
    file = file or (environment.get("EVERWATCH_CONFIG") if default_file else None)
    values: dict[str, dict[str, Json]] = {section: {} for section in _KEYS}
    if file:
        _merge(values, _read_file(file), f"in the configuration file {file}")
    _merge(values, _read_environment(environment), "in the environment")
    return _settings(values)


def _read_file(file: str) -> dict[str, Json]:
    try:
        return tomllib.loads(Path(file).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the configuration file {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"in the configuration file {file}: {error}") from error


def _read_environment(environment: Mapping[str, str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in environment.items():
        if not key.startswith("EVERWATCH_") or "__" not in key:
            continue
        path = key.removeprefix("EVERWATCH_").lower().split("__")
        place = found
        for part in path[:-1]:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"in the environment: {key}: another variable sets {part} as a whole")
            place = inner
        place[path[-1]] = value
    return found


def _merge(values: dict[str, dict[str, Json]], layer: dict[str, Json], where: str) -> None:
    for section, content in layer.items():
        if section in _OTHERS:
            continue
        if section not in _KEYS or not isinstance(content, dict):
            raise SettingsError(f"{where}: unknown section `{section}`; known: {', '.join([*_KEYS, *_OTHERS])}")
        for key, value in content.items():
            if key not in _KEYS[section]:
                known = ", ".join(sorted(_KEYS[section]))
                raise SettingsError(f"{where}: unknown key `{section}.{key}`; known: {known}")
            if isinstance(value, dict) and isinstance(values[section].get(key), dict):
                values[section][key] = values[section][key] | value
            else:
                values[section][key] = value


def _settings(values: dict[str, dict[str, Json]]) -> Settings:
    broker, service, log = values["broker"], values["service"], values["log"]
    heartbeat = _duration(broker, "broker.heartbeat", "5s")
    grace = _duration(service, "service.fence_grace", "500ms")
    if not heartbeat.is_integer() or not 3 <= heartbeat <= 14:
        raise SettingsError("broker.heartbeat: must be whole seconds from 3s to 14s")
    if heartbeat + grace >= min(heartbeat * 2, 15.0):
        raise SettingsError(
            "service.fence_grace: broker.heartbeat plus service.fence_grace must be below two heartbeats and 15s"
        )
    interval = _duration(service, "service.heartbeat_interval", "5s")
    if not 1 <= interval <= 60:
        raise SettingsError("service.heartbeat_interval: from 1s to 60s")
    name = str(service.get("name") or "") or _legal(host_name())
    rates = service.get("start_rates", {})
    single = _flag(service, "service.pool_single")
    return Settings(
        name=_checked(check_name, name, "service.name"),
        urls=_urls(broker),
        broker=broker if broker.get("url_file") else None,
        prefix=str(broker.get("prefix", "everwatch.")),
        state_queues=_whole(broker, "broker.state_queues", 1, 1, STATE_QUEUES_MAX),
        heartbeat=int(heartbeat),
        pool=_checked(check_pool, str(service.get("pool", "default")), "service.pool"),
        pool_single=single,
        capacity=_capacity(service, single=single),
        weight_max=_weight_max(service, single=single),
        labels={key: str(value) for key, value in service.get("labels", {}).items()},
        heartbeat_interval=interval,
        fence_grace=grace,
        drain_timeout=_duration(service, "service.drain_timeout", "20s"),
        start_rate=_rate(service.get("start_rate", 0.0), "service.start_rate"),
        start_rates={
            _checked(check_kind, kind, "service.start_rates"): _rate(rate, f"service.start_rates.{kind}")
            for kind, rate in rates.items()
        },
        log_lines=_whole(service, "service.log_lines", 100, 0, LINES_MAX),
        log_level=_level(str(log.get("filter", "info"))),
        listen=str(service.get("listen", "")),
        secrets=_secrets(service),
        verifier=_verifier(broker),
    )


def _verifier(broker: dict[str, Json]) -> Verifier | None:
    file = str(broker.get("verify_keys_file", ""))
    try:
        return Verifier(file) if file else None
    except ValueError as error:
        raise SettingsError(f"broker.verify_keys_file: {error}") from error


def _secrets(service: dict[str, Json]) -> Secrets:
    names = service.get("secrets_env", [])
    names = names.split(",") if isinstance(names, str) else names
    env = frozenset(name.strip() for name in map(str, names) if name.strip())
    secrets = Secrets(str(service.get("secrets_dir", "")), env)
    wrong = secrets.check()
    if wrong is not None:
        raise SettingsError(f"service.{wrong}")
    return secrets


def _checked(check: Any, value: str, key: str) -> str:  # noqa: ANN401 - one of the checks of names
    try:
        return str(check(value))
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error


def _urls(broker: dict[str, Json]) -> tuple[str, ...]:
    text, key = str(broker.get("url", _DEFAULT_URL)), "broker.url"
    if broker.get("url_file"):
        key = "broker.url_file"
        try:
            text = Path(str(broker["url_file"])).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{key}: cannot read {broker['url_file']}: {error}") from error
    urls = tuple(url.strip() for url in text.split(",") if url.strip())
    if not urls:
        raise SettingsError(f"{key}: no URL given")
    try:
        nodes = [read_url(url) for url in urls]
    except ConnectError as error:
        raise SettingsError(f"{key}: {error}") from error
    files = {parameter: str(broker[name]) for name, parameter in _TLS.items() if broker.get(name)}
    if ("certfile" in files) != ("keyfile" in files):
        raise SettingsError("broker.tls_cert_file and broker.tls_key_file: set both or neither")
    if not files:
        return urls
    if any(node.scheme != "amqps" for node in nodes):
        raise SettingsError("broker.tls_ca_file and broker.tls_cert_file need amqps:// in broker.url")
    return tuple(str(node.update_query(files)) for node in nodes)


def _duration(section: dict[str, Json], key: str, default: str) -> float:
    try:
        return parse_duration(str(section.get(key.split(".")[1], default)))
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error


def _whole(section: dict[str, Json], key: str, default: int, least: int, most: int) -> int:
    value = section.get(key.split(".")[1], default)
    try:
        number = int(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{key}: `{value}` must be a number from {least} to {most}") from error
    if not least <= number <= most:
        raise SettingsError(f"{key}: {number} must be from {least} to {most}")
    return number


def _flag(section: dict[str, Json], key: str) -> bool:
    value = str(section.get(key.split(".")[1], False)).lower()
    if value not in ("true", "false"):
        raise SettingsError(f"{key}: `{value}` must be true or false")
    return value == "true"


def _capacity(service: dict[str, Json], *, single: bool) -> int:
    value = service.get("capacity", "auto")
    if value == "auto":
        return min(auto_capacity(), BLOCK_MAX) if single else auto_capacity()
    try:
        slots = _whole(service, "service.capacity", 0, 0, CAPACITY_MAX)
    except SettingsError as error:
        raise SettingsError(
            f'service.capacity: `{value}` is not a capacity: a number from 0 to {CAPACITY_MAX}, or "auto"'
        ) from error
    if single and slots > BLOCK_MAX:
        raise SettingsError(f"service.capacity: {slots} must be at most {BLOCK_MAX} with service.pool_single")
    return slots


def _weight_max(service: dict[str, Json], *, single: bool) -> int:
    weight_max = _whole(service, "service.weight_max", 1, 1, WEIGHT_MAX)
    if weight_max > 1 and single:
        raise SettingsError(f"service.weight_max: {weight_max} must be 1 with service.pool_single")
    capacity = _capacity(service, single=single)
    if weight_max > 1 and weight_max > capacity:
        raise SettingsError(
            f"service.weight_max: {weight_max} is above service.capacity, {capacity}: no such observer would fit"
        )
    return weight_max


def _rate(value: Json, key: str) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = -1.0
    if not 0 <= rate <= 1e6:
        raise SettingsError(f"{key}: {value} must be from 0 (no limit) to 1000000 starts per second")
    return rate


def _level(text: str) -> str:
    """The level of a filter such as ``info,lapin=off``."""
    level = next((part for part in text.upper().split(",") if "=" not in part), "INFO").strip()
    levels = {"TRACE": "DEBUG", "WARN": "WARNING", "OFF": "CRITICAL"}
    level = levels.get(level, level)
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise SettingsError(f"log.filter: `{text}` has no level: begin with trace, debug, info, warn, error or off")
    return level


def _legal(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", host) or "service"
