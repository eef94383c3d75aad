"""How operations on the broker fail, and what an operator must do about it."""

from aiormq.exceptions import InvalidFrameError, ProbableAuthenticationError
from yarl import URL

_FORM = 'amqp://user:password@host:5672/vhost (amqps:// for TLS; the vhost "/" is written %2f)'


class ConnectError(Exception):
    """No session could be opened. ``is_final``: a retry cannot help, an operator must act."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


class SessionLost(ConnectionError):  # noqa: N818 - what happened
    """The session with the broker is gone."""


class Refused(Exception):  # noqa: N818
    """The broker refuses a queue or an exchange."""


class Forbidden(Refused):
    """The user of the session lacks the permission that the text names."""


class NotSent(Exception):  # noqa: N818
    """The broker did not keep a message."""


class Unroutable(NotSent):
    """No such queue."""


def explain_refusal(refusal: str) -> str:
    """A refusal to declare a queue; how to cure it if settings differ on whether a pool is single."""
    if "x-single-active-consumer" not in refusal:
        return refusal
    return (
        f"{refusal}; managers and services differ on whether this pool is single, and the queue keeps what it was "
        "declared with: set service.pool_single on all services of the pool if it was created with `everwatch pool "
        "create NAME --single`, and on none otherwise; a pool cannot change, so for the other setting use a pool of "
        "another name"
    )


def read_url(url: str) -> URL:
    """A broker URL; raises ConnectError, without the password, if it cannot be read."""
    try:
        node = URL(url)
        usable = node.scheme in ("amqp", "amqps") and bool(node.host)
    except ValueError:
        usable = False
    if not usable:
        raise ConnectError(f"cannot read the broker URL {redacted(url)}: expected {_FORM}", is_final=True)
    return node


def redacted(url: str) -> str:
    """The URL without its password."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    user = credentials.split(":")[0]
    return f"{scheme}{separator}{user}:***@{place}" if at else url


def explained(error: BaseException, node: URL, place: str) -> ConnectError:
    """Classifies an error of the connection: a retry may help, or an operator must act."""
    user, vhost, text = node.user or "guest", node.path.removeprefix("/") or "/", str(error)
    if isinstance(error, ProbableAuthenticationError):
        return ConnectError(
            f"RabbitMQ at {place} refuses user {user} ({text}): check user and password in the broker URL "
            "(the user guest may log in only from the broker's own host)",
            is_final=True,
        )
    # The client does not pass on what the broker says about a virtual host. The virtual host may be starting, or the
    # node may be full, so a retry may help.
    if isinstance(error, InvalidFrameError) and "Connection.OpenOk" in text:
        return ConnectError(
            f"RabbitMQ at {place} does not let user {user} into vhost {vhost}: `rabbitmqctl add_vhost {vhost}` if it "
            f"is missing, then `rabbitmqctl set_permissions -p {vhost} {user} '.*' '.*' '.*'`; it may also be "
            "starting, or its limit of connections may be reached"
        )
    return ConnectError(f"RabbitMQ at {place} cannot be reached: {text}")
