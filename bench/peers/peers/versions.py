"""Asks the servers and the packages for their versions."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from peers.systems import System


def of(systems: Sequence[System], urls: dict[str, str]) -> dict[str, str]:
    """The versions of all parts that these systems use."""
    found = {}
    for package in dict.fromkeys(it.package for it in systems):
        if package == "everwatch":
            answer = subprocess.run(
                [os.environ["EVERWATCH_BIN"], "--version"], capture_output=True, text=True, check=True, timeout=10
            ).stdout
            found["Everwatch"] = answer.split()[1]
        elif package == "bullmq":
            manifest = Path(os.environ["PEERS_NODE"], "node_modules", "bullmq", "package.json")
            found["bullmq"] = json.loads(manifest.read_text())["version"]
        else:
            found[package] = version(package)
    servers = {"rabbitmq": ("RabbitMQ", _rabbitmq), "redis": ("Redis", _redis), "postgres": ("PostgreSQL", _postgres)}
    for server in dict.fromkeys(it.server for it in systems):
        name, ask = servers.get(server, ("nats-server", _nats))
        found[name] = ask(urls[server])
    return found


def _rabbitmq(url: str) -> str:
    # Only the peers on this broker need it.
    import aio_pika  # noqa: PLC0415

    async def ask() -> str:
        async with await aio_pika.connect(url) as connection:
            assert connection.transport is not None
            return str(connection.transport.connection.server_properties["version"])

    return asyncio.run(ask())


def _postgres(url: str) -> str:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(url) as connection:
        return str(connection.info.server_version // 10000)


def _redis(url: str) -> str:
    text = _ask(url, b"INFO server\r\n")
    return next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("redis_version"))


def _nats(url: str) -> str:
    return str(json.loads(_ask(url, b"").removeprefix("INFO "))["version"])


def _ask(url: str, request: bytes) -> str:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(request)
        return connection.recv(65536).decode()
