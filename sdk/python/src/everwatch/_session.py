"""One incarnation of a service, from its registration to its end: the loop around the machine."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from uuid import UUID

from everwatch import _effects as effects
from everwatch import _machine as machine
from everwatch._answers import HeldAnswers, LogAnswers
from everwatch._blocks import Blocks, block_sizes
from everwatch._broker import Delivery, Session
from everwatch._broker_errors import NotSent, SessionLost
from everwatch._channels import Channels
from everwatch._checkpoints import CheckpointRequests
from everwatch._clock import boottime, timestamp, wall_ms
from everwatch._commands import read_command
from everwatch._effects import Now, SlotPolicy
from everwatch._fence import Fence
from everwatch._host import host_name, resident_bytes
from everwatch._inbox import Inbox
from everwatch._incarnation import Incarnation
from everwatch._inventory import Range, chunks, digests
from everwatch._liveness import prove_life
from everwatch._outlet import SessionOutlet, sampled_trace
from everwatch._permit_requests import PermitRequests
from everwatch._refusals import Refusals
from everwatch._reporter import Reporter, said
from everwatch._rules import STEADY, limits
from everwatch._signature import ALTERED, HEADER, PARKED_AS, Refused
from everwatch._slots import Slots
from everwatch._tasks import Ended, Units
from everwatch._topology import Topology
from everwatch._turns import Pace
from everwatch._wire import WORK_VERSION, RunReport, Unreadable, encode, epoch_of, read_work, show_epoch

Json = Any
VERSION = "0.2.0-dev"
# Seconds between two reports of progress, and between two inventories.
_PROGRESS = 1.0
_LIST_EVERY = 60.0
# How long a message with an unknown key is held, so that it does not circulate between services without pause.
_GIVE_BACK_AFTER = 10.0
# How often a message with an unknown key is delivered before it is parked: after about five minutes.
_GIVE_BACK_MOST = 30
# The most inputs that the loop handles before it looks at its timers.
_INPUTS_AT_ONCE = 64
# The most commands in transit to the loop.
_COMMANDS_AHEAD = 100

logger = logging.getLogger("everwatch")


class ServiceSession:
    """The loop around one machine: feeds it what happens, and carries out its effects."""

    def __init__(self, me: Incarnation, session: Session, topology: Topology, tripped: asyncio.Event) -> None:
        """``tripped`` is set once the fence has tripped and all code has ended."""
        self.me = me
        self.session = session
        self.topology = topology
        self.inbox = Inbox()
        self._loop = asyncio.get_running_loop()
        self.machine = machine.Machine(me.id, _slots(me), _blocks(me, self._mono()))
        self.checkpoints = CheckpointRequests(self._mention)
        self.permits = PermitRequests(me.id, partial(session.publish, topology.rates))
        self.outlet = SessionOutlet(session, topology, me.logs, (self.checkpoints, self.permits), self._on_ready)
        self.units = Units(me.tasks, me.registry, self.outlet, self._on_ended, me.settings.secrets)
        times = limits(me.settings.heartbeat, me.settings.fence_grace, me.settings.heartbeat)
        self.fence = Fence(*times, self.units, lambda: self._threadsafe(self._on_tripped, tripped))
        self.reporter = Reporter(me.id, session, topology, self.fence)
        self.channels = Channels(session, self.fence, self._queue, self._on_delivery, self._on_block_ended)
        self._held_answers = HeldAnswers(self.reporter, topology, me.settings.pool)
        self._log_answers = LogAnswers(session, topology, me.logs)
        self._helpers: set[asyncio.Task[None]] = set()
        # The trace of each held run that is sampled.
        self._traces: dict[tuple[UUID, int], Json] = {}
        self._refusals = Refusals()
        self._heartbeats = 0
        self._held_told = 0
        self._inventories = 0
        self._lag = 0.0

    @property
    def _queue(self) -> str:
        return self.topology.work(self.me.settings.pool)

    # Called from other tasks and threads:

    def _threadsafe(self, act: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)

    def _on_tripped(self, tripped: asyncio.Event) -> None:
        self.session.lose(self.fence.reason or "fenced")
        tripped.set()

    def _on_ended(self, ended: Ended) -> None:
        step = partial(self.machine.on_ended, ended.id, ended.epoch, ended.outcome)
        self._threadsafe(partial(self.inbox.put, partial(self.step, step), urgent=True))

    def _on_ready(self, observer: UUID, epoch: int) -> None:
        self.inbox.put(partial(self.step, partial(self.machine.on_ready, observer, epoch)))

    def _on_delivery(self, block: int, delivery: Delivery) -> None:
        self.inbox.put(partial(self._on_work, block, delivery))

    def _on_block_ended(self, block: int) -> None:
        self.inbox.put(partial(self.step, partial(self.machine.on_block_ended, block)))

    def _on_confirmed(self, run: RunReport) -> None:
        self.inbox.put(partial(self.step, partial(self.machine.on_confirmed, run)), urgent=True)

    def _mention(self, observer: UUID, report: Json) -> None:
        self.reporter.mention(said(report, observer=observer))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task until the session is over."""
        task = self._loop.create_task(work)
        self._helpers.add(task)
        task.add_done_callback(self._on_helper_done)

    def _on_helper_done(self, task: "asyncio.Task[None]") -> None:
        self._helpers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A mistake in this package: without this helper, the service would work only in part.
            logger.error("a part of the service failed", exc_info=task.exception())
            self.fence.trip(f"a part of the service failed: {task.exception()!r}")

    async def close(self) -> None:
        """Ends the helpers."""
        self.fence.close()
        self.checkpoints.close_all()
        self.permits.close_all()
        helpers = list(self._helpers)
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self.channels.close()

    # The loop:

    async def begin(self, *, work_queue_created: bool) -> None:
        """Listens for commands, starts the proofs of life, and registers."""
        self.spawn(self.reporter.run())
        self.spawn(self._held_answers.run())
        self.spawn(self._log_answers.run())
        self.spawn(self.permits.run())
        self.spawn(prove_life(self.session, self.fence, self.topology, self.me.id))
        commands = await self.session.consumer()
        queue = self.topology.commands_of(self.me.settings.pool, self.me.id)
        await commands.begin(queue, _COMMANDS_AHEAD, 0, self._on_command_delivery)
        if work_queue_created:
            await self.reporter.say(said({"work_queue_created": {"pool": self.me.settings.pool}}))
        await self.reporter.confirmed({"service_registered": self._registration()})
        logger.info("registered; service=%s capacity=%d", self.me.id, self.machine.blocks.capacity)
        await self.step(self.machine.on_registered)

    async def run(self) -> None:
        """Works until the service is told to stop, or until the fence has tripped."""
        now = self._loop.time()
        heartbeat, progress = now, now
        # At a random moment: services that registered together must not send their inventories together.
        inventory = now + _LIST_EVERY * random.random()
        while self.fence.reason is None and not self.me.handle.stopping.is_set():
            await self.inbox.wait(self._pause(min(heartbeat, progress, inventory)))
            await self.handle_waiting()
            now = self._loop.time()
            if self._is_overdue():
                await self.step(self.machine.on_wake)
            if now >= heartbeat:
                self._lag = now - heartbeat
                self.heartbeat()
                heartbeat = now + self.me.settings.heartbeat_interval
            if now >= progress:
                progress = now + _PROGRESS
                await self._on_progress()
            if now >= inventory:
                inventory = now + _LIST_EVERY
                await self._send_digests()

    async def handle_waiting(self) -> None:
        """Handles the inputs that wait."""
        for _ in range(_INPUTS_AT_ONCE):
            it = self.inbox.waiting()
            if it is None or self.fence.reason is not None:
                return
            await it()

    def _pause(self, until: float) -> float:
        """Seconds until a time of the loop, or until the machine's next deadline."""
        pause, now = until - self._loop.time(), self.now()
        deadline = self.machine.next_deadline(now)
        return pause if deadline is None else min(pause, deadline - now.mono)

    def _is_overdue(self) -> bool:
        now = self.now()
        deadline = self.machine.next_deadline(now)
        return deadline is not None and deadline <= now.mono

    async def wait_for_input(self, seconds: float) -> None:
        """Waits for inputs and deadlines for at most this long, and handles them."""
        await self.inbox.wait(self._pause(self._loop.time() + seconds))
        await self.handle_waiting()
        if self._is_overdue():
            await self.step(self.machine.on_wake)

    def _mono(self) -> float:
        return boottime() - self.me.started

    def now(self) -> Now:
        """The current time for the machine."""
        return Now(self._mono(), wall_ms(), random.random())

    async def step(self, act: Callable[[Now], list[machine.MachineEffect]]) -> None:
        """Feeds one input to the machine and carries out its effects."""
        # A fenced service reports nothing and starts nothing: its messages are no longer its own.
        if self.fence.reason is not None:
            return
        for effect in act(self.now()):
            # This loop may run before the thread of the fence does, for example after a freeze.
            if isinstance(effect, (effects.Start, effects.Settle)) and not self.fence.stands:
                self.fence.trip("the broker has not answered in time")
                return
            await self._carry_out(effect)

    async def _carry_out(self, effect: machine.MachineEffect) -> None:
        match effect:
            case effects.Start(epoch, attempt, work):
                self.units.start(work, epoch, attempt)
            case effects.CancelRun(observer, reason):
                self.units.cancel(observer, reason)
            case effects.AbortRun(observer):
                self.units.abort(observer)
            case effects.Report(run):
                await self.reporter.run_report(run, self._trace_of(run))
            case effects.Settle(run) | effects.Announce(run):
                await self.reporter.run_report(run, self._trace_of(run), partial(self._on_confirmed, run))
            case effects.Ack(receipt):
                self.check_settled(is_ours=await self.session.ack(receipt))
            # The work queue of a single pool refuses the proof. Managers free the place without the report, later.
            case effects.Release(receipt, _) if self.me.settings.pool_single:
                self.check_settled(is_ours=await self.session.ack(receipt))
            case effects.Release(receipt, run):
                self.spawn(self._release(receipt, run))
            case effects.Requeue(receipt):
                self.check_settled(is_ours=await self.session.requeue(receipt))
            case effects.Lost(observer, epoch):
                self.fence.trip(f"observer {observer}, held as {show_epoch(epoch)}, was handed out again")
            case machine.Block(block_effect):
                self.channels.follow(block_effect)
            case machine.Ready():
                self.me.handle.on_ready()
            case machine.Directed(directives, capacity):
                flags = (directives.cordoned, directives.draining, capacity)
                logger.info("directives changed; cordoned=%s draining=%s capacity=%d", *flags)
                self.heartbeat()
            case machine.DescribeHeld(ids):
                await self._describe(ids)
            case machine.ListRanges(ranges):
                await self._send_ranges(ranges)
            case machine.AnswerLogs(asked):
                self._log_answers.ask(asked)
            case machine.HandCheckpoints(checkpoints):
                self.checkpoints.on_command(checkpoints)
            case machine.HandPermits(permits):
                self.permits.on_command(permits)

    async def _release(self, receipt: int, run: RunReport) -> None:
        """Acknowledges a message that counts towards limits, and reports that once the queue has accepted it."""
        is_ours = await self.session.ack_accepted(receipt)
        self.check_settled(is_ours=is_ours)
        if is_ours:
            await self.reporter.run_report(run, None)

    def check_settled(self, *, is_ours: bool) -> None:
        """A message that another session has: this session has lost everything that it held."""
        if not is_ours:
            self.fence.trip("a message is no longer ours")

    def _trace_of(self, run: RunReport) -> Json:
        trace = self._traces.get((run.id, run.epoch))
        if not run.holds:
            self._traces.pop((run.id, run.epoch), None)
            self.me.logs.close(run.id, run.epoch)
            self.checkpoints.close((run.id, run.epoch))
            if run.type == "refused":
                logger.warning("refused, given back for another service; observer=%s", run.id)
        return trace

    async def _on_work(self, block: int, delivery: Delivery) -> None:
        refused = self._refusal(delivery, is_command=False)
        if refused is not None:
            await self._refuse_work(block, delivery, refused)
            return
        try:
            read = read_work(delivery.body)
        except Unreadable as error:
            await self.step(partial(self.machine.on_unreadable, block))
            logger.warning("an unreadable work message is parked; bytes=%d: %s", len(delivery.body), error)
            self.spawn(self._park(block, delivery, str(error)))
            return
        trace = sampled_trace(delivery.headers)
        if trace is not None:
            self._traces[read.id, epoch_of(read.generation, delivery.acquisitions)] = trace
        step = partial(self.machine.on_delivered, block, delivery.receipt, read, delivery.acquisitions)
        await self.step(step)

    def _refusal(self, delivery: Delivery, *, is_command: bool) -> Refused | None:
        verifier = self.me.settings.verifier
        if verifier is None:
            return None
        queue = self.topology.commands_of(self.me.settings.pool, self.me.id) if is_command else self._queue
        if HEADER in delivery.headers and not self.topology.leads_to(delivery.way, queue):
            return ALTERED
        return verifier.refusal(delivery.way, delivery.headers, delivery.body, is_command=is_command)

    async def _refuse_work(self, block: int, delivery: Delivery, refused: Refused) -> None:
        """Such a message never reaches the machine: it could end the run of a genuine one."""
        try:
            observer: UUID | None = read_work(delivery.body).id
        except Unreadable:
            observer = None
        self._refusals.add(self._queue, refused, observer)
        await self.step(partial(self.machine.on_unreadable, block))
        if refused.code == "unknown-key" and delivery.acquisitions < _GIVE_BACK_MOST:
            # It may be genuine, and the file of this service out of date.
            self.spawn(self._give_back_later(block, delivery.receipt))
        else:
            self.spawn(self._park(block, delivery, PARKED_AS + refused.why))

    async def _give_back_later(self, block: int, receipt: int) -> None:
        await asyncio.sleep(_GIVE_BACK_AFTER)
        self.check_settled(is_ours=await self.session.requeue(receipt))
        self.inbox.put(partial(self.step, partial(self.machine.on_freed, block)))

    async def _park(self, block: int, delivery: Delivery, reason: str) -> None:
        """Parks a message that no version can read, unchanged, and acknowledges it only then."""
        headers: dict[str, str | int] = {"everwatch-reason": reason[:500], "everwatch-queue": self._queue}
        try:
            await self.session.publish(self.topology.parked, delivery.body, headers=headers)
        except NotSent as error:
            logger.warning("a message could not be parked; it stays held: %s", error)
            return
        except SessionLost:
            return
        self.check_settled(is_ours=await self.session.ack(delivery.receipt))
        self.inbox.put(partial(self.step, partial(self.machine.on_freed, block)))

    def _on_command_delivery(self, delivery: Delivery) -> None:
        self.inbox.put(partial(self._on_command, delivery))

    async def _on_command(self, delivery: Delivery) -> None:
        refused = self._refusal(delivery, is_command=True)
        if refused is not None:
            self._refusals.add(self.topology.commands_of(self.me.settings.pool, self.me.id), refused, None)
            self.check_settled(is_ours=await self.session.ack(delivery.receipt))
            return
        try:
            command = read_command(delivery.body)
        except Unreadable as error:
            logger.warning("an unreadable command is dropped: %s", error)
        else:
            if command is not None:
                await self.step(partial(self.machine.on_command, command))
        self.check_settled(is_ours=await self.session.ack(delivery.receipt))

    async def _on_progress(self) -> None:
        for observer, (epoch, text) in self.outlet.take_progress().items():
            run = RunReport(observer, epoch, {"progress": {"text": text}})
            self._mention(observer, {"run": run.json()})
        self.checkpoints.repeat()
        for report in self._refusals.take():
            await self.reporter.say(said(report))
        await self.step(self.machine.on_wake)
        if self.machine.blocks.held != self._held_told:
            self.heartbeat()

    def heartbeat(self) -> None:
        """Sends a heartbeat. Nothing waits for it: the next one repeats its content.

        A process that was frozen sends none before its fence trips: managers would count the gaps of its observers from
        that heartbeat, although their code stood still before.
        """
        if not self.fence.has_proofs:
            return
        self._heartbeats += 1
        self._held_told = self.machine.blocks.held
        content = {
            "service": str(self.me.id),
            "seq": self._heartbeats,
            "state": self.machine.intent,
            "capacity": self.machine.blocks.capacity,
            "held": self._held_told,
            "loop_lag_ms": min(round(max(self._lag, 0.0) * 1000), (1 << 32) - 1),
            "rss_bytes": resident_bytes(),
            "sent_at": timestamp(wall_ms()),
        }
        self.spawn(self._send_heartbeat(encode({"heartbeat": content})))

    async def _send_heartbeat(self, body: bytes) -> None:
        try:
            await self.session.publish(self.topology.heartbeats, body)
        except (NotSent, SessionLost) as error:
            logger.debug("a heartbeat was not accepted: %s", error)

    def _registration(self) -> Json:
        settings = self.me.settings
        registration: dict[str, Json] = {
            "name": settings.name,
            "pool": settings.pool,
            "capacity": self.machine.blocks.capacity,
            "kinds": self.me.registry.infos(),
            "version": VERSION,
            "message_version": WORK_VERSION,
            "host": host_name(),
        }
        if settings.pool_single:
            registration["pool_single"] = True
        if settings.weight_max > 1:
            registration["weight_max"] = settings.weight_max
        if settings.labels:
            registration["labels"] = settings.labels
        if self.me.predecessor is not None:
            service, ended = self.me.predecessor
            registration["predecessor"] = {"service": str(service), "ended": ended}
        return registration

    async def _describe(self, ids: list[UUID]) -> None:
        if ids:
            self._held_answers.ask(self.machine.slots.describe(ids, self.now()))
            return
        await self.reporter.say(said({"service_registered": self._registration()}))
        await self._send_digests()

    async def _send_digests(self) -> None:
        self._inventories += 1
        inventory = digests(self._inventories, self.machine.slots.inventory(self.now()))
        await self.reporter.say(said({"inventory_digest": inventory}))

    async def _send_ranges(self, ranges: list[Range]) -> None:
        for chunk in chunks(self._inventories, ranges, self.machine.slots.inventory(self.now())):
            await self.reporter.say(said({"inventory": chunk}))


def _slots(me: Incarnation) -> Slots:
    policy = SlotPolicy(
        kinds=me.registry.names,
        fence_grace=me.settings.fence_grace,
        consumers=1 if me.settings.pool_single else len(block_sizes(me.settings.capacity // me.settings.weight_max)),
        weight_max=me.settings.weight_max,
        await_ready=me.registry.await_ready,
    )
    return Slots(policy, Pace.of(me.settings.start_rate, me.settings.start_rates), me.database_clock)


def _blocks(me: Incarnation, now: float) -> Blocks:
    blocks = Blocks(me.settings.capacity, single=me.settings.pool_single, weight_max=me.settings.weight_max)
    if me.comes_last:
        blocks.defer(now + STEADY)
    return blocks
