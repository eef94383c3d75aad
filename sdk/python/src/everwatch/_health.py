"""``/livez`` and ``/readyz`` of a service, if ``service.listen`` is set.

A thread of its own serves them, one request after the other, so that no client delays the control loop.
"""

import http.server
import socketserver
import threading
import time
from collections.abc import Callable

# After what silence of the control loop ``/livez`` answers 503, in seconds.
TURN_WITHIN = 10.0
# How long a client may take for its request, in seconds.
_REQUEST_WITHIN = 5.0


class Health:
    """What the endpoints answer. Thread-safe."""

    def __init__(self) -> None:
        self._turned = time.monotonic()
        self._is_ready: Callable[[], bool] = lambda: False

    def watch(self, is_ready: Callable[[], bool]) -> None:
        """Whether the service takes all that it may."""
        self._is_ready = is_ready

    def turn(self) -> None:
        """The control loop turns."""
        self._turned = time.monotonic()

    def answer(self, path: str) -> tuple[int, str]:
        """The status and the body for a path."""
        since = time.monotonic() - self._turned
        match path.partition("?")[0]:
            case "/livez" if since <= TURN_WITHIN:
                return 200, "alive\n"
            case "/livez":
                return 503, f"the control loop has not turned for {since:.0f} s\n"
            case "/readyz" if self._is_ready():
                return 200, "ready\n"
            case "/readyz":
                return 503, "no session with the broker, or not all of its slots are open yet\n"
        return 404, "not found; there are /livez and /readyz\n"


class _Server(socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 50


def serve(address: str, health: Health) -> None:
    """Serves until the process ends.

    Raises:
        OSError: the address cannot be used.
        ValueError: it is not an address with a port.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ValueError(f"`{address}` is not an address with a port, such as 127.0.0.1:7701")

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = _REQUEST_WITHIN

        def do_GET(self) -> None:
            status, text = health.answer(self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Requests of probes are no news."""

    server = _Server((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, name="everwatch-health", daemon=True).start()
