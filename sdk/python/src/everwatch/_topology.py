"""Every queue and exchange of a deployment, and the arguments with which queues are declared.

The arguments never change: RabbitMQ refuses to declare an existing queue with other arguments.
"""

from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

STATE_QUEUES_MAX = 64
# The routing key of commands to all services of a pool.
ALL = "all"
_MASK = (1 << 64) - 1

Arguments = dict[str, str | int | bool]


class QueueKind(Enum):
    """What a queue is for, which decides its arguments."""

    DURABLE = auto()
    # The work queue of a single pool.
    SINGLE_ACTIVE = auto()
    HEARTBEATS = auto()
    RATES = auto()
    EXCLUSIVE = auto()


@dataclass(frozen=True, slots=True)
class Topology:
    """The names of one deployment."""

    prefix: str
    state_queues: int = 1

    def work(self, pool: str) -> str:
        """One message for each live observer of the pool."""
        return f"{self.prefix}work.{pool}"

    def state_queue(self, index: int) -> str:
        """A queue for reports; the first has no number."""
        return f"{self.prefix}state.{index}" if index else f"{self.prefix}state"

    def state_of(self, observer: UUID) -> int:
        """The number of the state queue of all reports about this observer.

        Every implementation must choose the same queue: the finalizer of SplitMix64 over both halves of the id.
        """
        mixed = (observer.int >> 64) ^ (observer.int & _MASK)
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        return (mixed ^ (mixed >> 31)) % self.state_queues

    @property
    def heartbeats(self) -> str:
        """Heartbeats and probes."""
        return f"{self.prefix}heartbeats"

    @property
    def rates(self) -> str:
        """Requests for permits of rates."""
        return f"{self.prefix}rates"

    @property
    def parked(self) -> str:
        """Messages that no version can read."""
        return f"{self.prefix}parked"

    @property
    def commands(self) -> str:
        """The fan-out exchange of commands to all services."""
        return f"{self.prefix}commands"

    def commands_to(self, pool: str) -> str:
        """The direct exchange of commands to the services of a pool; the key ``ALL`` means all of them."""
        return f"{self.prefix}commands.{pool}"

    def leads_to(self, way: tuple[str, str], queue: str) -> bool:
        """Whether managers publish to this queue of a service through this exchange with this routing key.

        Anybody with the permission can bind the queue to other exchanges, and to other keys.
        """
        own = self.exchange_of(queue)
        name = queue.removeprefix(self.prefix)
        is_for_all = name.startswith("commands.") and way in ((self.commands, ""), (own, ALL))
        return is_for_all or way == (own, queue)

    def commands_of(self, pool: str, service: UUID) -> str:
        """The exclusive queue of one service, which exists exactly as long as its session."""
        return f"{self.prefix}commands.{pool}.{service}"

    def replies(self, to: str) -> str:
        """The exclusive queue of one manager session."""
        return f"{self.prefix}replies.{to}"

    @property
    def output(self) -> str:
        """The topic exchange of what observers emit."""
        return f"{self.prefix}output"

    def exchange_of(self, queue: str) -> str:
        """The direct exchange through which messages get to this queue; the routing key is the name of the queue.

        Permission to write to the default exchange would be permission to write to every queue of the vhost.
        """
        name = queue.removeprefix(self.prefix)
        if name.startswith("work."):
            return f"{self.prefix}work"
        # The name of a pool contains no dot.
        kind, _, rest = name.partition(".")
        if kind == "commands" and "." in rest:
            return self.commands_to(rest.partition(".")[0])
        return f"{self.prefix}reports"

    def exchanges_with(self, queue: str) -> list[str]:
        """The direct exchanges that are declared with this queue."""
        pool = queue.removeprefix(f"{self.prefix}work.")
        commands = [] if pool == queue else [self.commands_to(pool)]
        return [self.exchange_of(queue), *commands]

    def arguments(self, queue: str, kind: QueueKind) -> Arguments:
        """The arguments of a queue."""
        if kind is QueueKind.EXCLUSIVE:
            return {"x-queue-type": "classic"}
        if kind is QueueKind.HEARTBEATS:
            return {
                "x-queue-type": "quorum",
                "x-message-ttl": 15_000,
                "x-max-length": 100_000,
                "x-overflow": "drop-head",
            }
        if kind is QueueKind.RATES:
            # An older request would be granted although its service no longer uses the grant.
            return {
                "x-queue-type": "quorum",
                "x-message-ttl": 2_000,
                "x-max-length": 10_000,
                "x-overflow": "drop-head",
            }
        arguments: Arguments = {
            "x-queue-type": "quorum",
            # Without a limit, 4.x uses 20. With -1, 3.x deletes a message at its first redelivery.
            "x-delivery-limit": 1_000_000_000,
            # Ten years. A value above 292 years crashes the queue on 4.3.
            "x-consumer-timeout": 315_360_000_000,
        }
        if kind is QueueKind.SINGLE_ACTIVE:
            arguments |= {"x-single-active-consumer": True}
        if queue != self.parked:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.parked}
        return arguments | {"x-overflow": "reject-publish", "x-consumer-disconnected-timeout": 15_000}
