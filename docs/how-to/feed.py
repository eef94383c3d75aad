"""A WebSocket server to try the kind `websocket` with: it answers a subscription, then sends a price every 0.2 s.

    python3 feed.py PORT
"""

import asyncio
import base64
import hashlib
import itertools
import json
import sys

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(message: dict) -> bytes:
    """A text message of less than 126 bytes."""
    text = json.dumps(message).encode()
    return bytes([0x81, len(text)]) + text


async def receive(reader: asyncio.StreamReader) -> str:
    """The text of the next message of the client, which is masked and short."""
    head = await reader.readexactly(2)
    mask = await reader.readexactly(4)
    text = await reader.readexactly(head[1] & 0x7F)
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(text)).decode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = [line.split(": ", 1) for line in request.split("\r\n") if ": " in line]
    key = {name.lower(): value for name, value in lines}["sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest()).decode()
    writer.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
    wanted = json.loads(await receive(reader))["subscribe"]
    writer.write(frame({"subscribed": wanted}))
    for number in itertools.count():
        writer.write(frame({"symbol": wanted, "price": 100 + number % 7}))
        await writer.drain()
        await asyncio.sleep(0.2)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), reuse_port=True)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
