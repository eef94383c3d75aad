"""Follows the prices of an exchange over a WebSocket, and emits each price under a routing key of its own.

Needs RabbitMQ and a manager: ``everwatch dev --broker amqp://guest:guest@127.0.0.1:5672/%2f``.

.. code-block:: sh

    pip install './sdk/python[examples]'
    EVERWATCH_SERVICE__NAME=py1 python sdk/python/examples/price_watcher.py
    everwatch observer create euro --kind price-watcher \\
        --spec '{"url": "wss://exchange.example/feed", "symbols": ["btc-eur", "eth-eur"]}'

The same kind in Rust is ``crates/sdk/examples/price_watcher.rs``: services in both languages can share its observers.
It shows a kind that keeps a connection: it announces that it is ready after the first answer, connects again after
growing pauses, and closes a connection on which the server has sent nothing for ``silence_seconds``. The exchange
answers ``{"subscribe": ["btc-eur"]}`` with ``{"subscribed": ["btc-eur"]}``, and sends
``{"symbol": "btc-eur", "price": "61234.50"}`` for each new price.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass
from typing import Any

from websockets import ClientConnection, ConnectionClosed, InvalidHandshake, connect

from everwatch import Context, Service, observer

# The largest message that the exchange may send, in bytes.
MESSAGE_MAX = 64 * 1024
# The first and the longest pause between two connections, and the length of a healthy connection, in seconds.
PAUSE_FIRST, PAUSE_MAX, HEALTHY_AFTER = 1.0, 60.0, 60.0
# How long a close may take, in seconds: after a lost session, code has half a second to stop.
CLOSE_TIMEOUT = 0.2


@dataclass
class Prices:
    """Which prices to follow."""

    url: str
    symbols: list[str]
    # How long the exchange may send nothing; then the observer connects again.
    silence_seconds: int = 30


class DisconnectedError(Exception):
    """Why there is no connection with the exchange."""


@observer("price-watcher", awaits_ready=True)
async def price_watcher(ctx: Context, spec: Prices) -> None:
    """Emits the prices of one connection after the other until it is told to stop."""
    following = asyncio.create_task(follow_again_and_again(ctx, spec))
    cancelled = asyncio.create_task(ctx.cancelled())
    try:
        await asyncio.wait([following, cancelled], return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
    finally:
        following.cancel()
        cancelled.cancel()
        await asyncio.wait([following, cancelled])


async def follow_again_and_again(ctx: Context, spec: Prices) -> None:
    """Connects again after each connection, with pauses that grow while connections are short."""
    longest = PAUSE_FIRST
    while True:
        begun = time.monotonic()
        try:
            await follow(ctx, spec)
        except DisconnectedError as reason:
            ctx.log(f"disconnected: {reason}")
            ctx.status("disconnected")
        if time.monotonic() - begun >= HEALTHY_AFTER:
            longest = PAUSE_FIRST
        # Random: observers that have lost the same server do not come back at the same moment.
        await asyncio.sleep(longest * random.uniform(0.25, 1))
        longest = min(2 * longest, PAUSE_MAX)


async def follow(ctx: Context, spec: Prices) -> None:
    """Emits the prices of one connection; raises DisconnectedError when it ends."""
    try:
        socket = await connect(
            spec.url, open_timeout=spec.silence_seconds, close_timeout=CLOSE_TIMEOUT, max_size=MESSAGE_MAX
        )
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise DisconnectedError(f"cannot connect: {error}") from error
    async with socket:
        answer = await request(socket, {"subscribe": spec.symbols}, spec.silence_seconds)
        if "subscribed" not in answer:
            raise DisconnectedError(f"the exchange refused the subscription: {answer}")
        ctx.ready()
        ctx.status("subscribed")
        while True:
            match await receive(socket, spec.silence_seconds):
                case {"symbol": str(symbol), "price": str(price)}:
                    value = {"symbol": symbol, "price": price}
                    await ctx.emit(value, key=f"prices.{symbol}", headers={"symbol": symbol})
                case other:
                    raise DisconnectedError(f"`{other}` is not a price")


async def request(socket: ClientConnection, message: Any, within: float) -> Any:  # noqa: ANN401 - JSON
    """Sends a message and returns the answer."""
    try:
        await socket.send(json.dumps(message))
    except ConnectionClosed as error:
        raise DisconnectedError(str(error)) from error
    return await receive(socket, within)


async def receive(socket: ClientConnection, within: float) -> Any:  # noqa: ANN401 - JSON
    """The next message."""
    try:
        async with asyncio.timeout(within):
            return json.loads(await socket.recv())
    except TimeoutError as error:
        raise DisconnectedError(f"the exchange has sent nothing for {within} s") from error
    except (ConnectionClosed, ValueError) as error:
        raise DisconnectedError(str(error)) from error


if __name__ == "__main__":
    Service(kinds=[price_watcher]).main()
