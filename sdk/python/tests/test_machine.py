"""Transcripts of the machine; they are those of the reference implementation."""

from uuid import UUID

import pytest

from everwatch import _commands as commands
from everwatch._commands import Describe, Direct, Directives, HandOver, ListHeld, Welcome
from everwatch._effects import Done
from everwatch._inventory import Range
from everwatch._wire import RunReport, epoch_of
from transcripts import ME, MachineScript, work

STARTED = ("start 1.0 attempt 1", "report started 1.0")
SECOND = ("start 1.0 attempt 1", "report started 1.0")


class Script(MachineScript):
    """The inputs of these tests."""

    def registered(self, *expected: str) -> "Script":
        self.expect(self.machine.on_registered(self.now), *expected)
        return self

    def wake(self, *expected: str) -> "Script":
        self.expect(self.machine.on_wake(self.now), *expected)
        return self

    def command(self, command: commands.Command, *expected: str) -> "Script":
        self.expect(self.machine.on_command(command, self.now), *expected)
        return self

    def deliver(self, block: int, observer: int, *expected: str) -> "Script":
        self.expect(self.machine.on_delivered(block, observer, work(observer), 0, self.now), *expected)
        return self

    def stopped(self, observer: int, *expected: str) -> "Script":
        found = self.machine.on_ended(UUID(int=observer), epoch_of(1, 0), Done(), self.now)
        self.expect(found, *expected)
        return self

    def block_ended(self, block: int, *expected: str) -> "Script":
        self.expect(self.machine.on_block_ended(block, self.now), *expected)
        return self

    def later(self, ms: int) -> "Script":
        self.after(ms)
        return self

    @classmethod
    def serving(cls, capacity: int, *, single: bool = False) -> "Script":
        """Registered, welcomed, with all blocks open."""
        script = cls(capacity, single=single)
        script.machine.on_registered(script.now)
        script.machine.on_command(Welcome(ME, []), script.now)
        while not script.machine.ready:
            script.after(50)
            script.machine.on_wake(script.now)
        return script


def test_no_work_is_taken_before_the_welcome_and_the_service_is_ready_once_all_blocks_are_open() -> None:
    script = Script(2)
    assert script.machine.next_deadline(script.now) is None
    script.later(3000).wake().registered()
    assert script.machine.next_deadline(script.now) == 4.0
    script.later(300).command(Welcome(ME, []), "open 1").later(50).wake("open 1", "ready")
    assert script.machine.next_deadline(script.now) is None


def test_without_a_manager_the_welcome_is_awaited_for_a_second() -> None:
    Script(1).registered().later(999).wake().later(1).wake("open 1", "ready")


def test_a_late_welcome_still_brings_the_directives_of_the_predecessor() -> None:
    script = Script(1).registered().later(1000).wake("open 1", "ready")
    late = Welcome(ME, [], directives=Directives(1, cordoned=True))
    script.command(late, "directed to 1 slots", "cancel a block")
    assert script.machine.intent == "cordoned"


def test_managers_tell_the_time_of_the_database() -> None:
    script = Script.serving(1)
    # The wall clock of the service says 0.
    script.command(Welcome(UUID(int=1), [], time=50_000)).command(Direct(ME, Directives(1)), "directed to 1 slots")
    expected = script.now.mono + 10
    script.expect(script.machine.on_delivered(2, 7, work(7, finish_at=60_000), 0, script.now), *STARTED)
    assert script.machine.next_deadline(script.now) == pytest.approx(expected)
    script.command(commands.Time(58_000)).later(1999).wake().later(1).wake("cancel finished")
    script.stopped(7, "settle finished 1.0")


def test_directives_of_an_older_revision_or_for_another_service_have_no_effect() -> None:
    script = Script.serving(2)
    script.command(Direct(ME, Directives(5, cordoned=True)), "directed to 2 slots", "cancel a block", "cancel a block")
    script.command(Direct(ME, Directives(5))).command(Direct(ME, Directives(4, capacity=9)))
    script.command(Direct(UUID(int=1), Directives(6)))
    assert (script.machine.intent, script.machine.blocks.capacity) == ("cordoned", 2)


def test_observers_are_handed_over_only_when_no_more_messages_arrive() -> None:
    script = Script.serving(2).deliver(2, 7, *STARTED)
    script.command(HandOver(ME, 10.0, "move", [UUID(int=7)]), "cancel a block", "cancel a block")
    script.block_ended(2).block_ended(4, "close a channel", "cancel")
    script.stopped(7, "report handed_over_for 1.0", "requeue 7", "close a channel")
    script.later(499).wake().later(1).wake("open 1 at priority -3")


def test_observers_are_handed_over_also_if_the_broker_confirms_a_cancel_late() -> None:
    script = Script.serving(2).deliver(2, 7, *STARTED)
    script.command(HandOver(ME, 10.0, "move", [UUID(int=7)]), "cancel a block", "cancel a block")
    script.block_ended(2)
    for _ in range(7):
        script.later(100).wake()
    script.block_ended(4, "close a channel", "cancel", "open 1 at priority -3")
    script.stopped(7, "report handed_over_for 1.0", "requeue 7")


def test_the_end_of_a_cordon_also_ends_what_waits_to_be_handed_over() -> None:
    script = Script.serving(2).deliver(2, 7, *STARTED)
    script.command(HandOver(ME, 10.0, "move", [UUID(int=7)]), "cancel a block", "cancel a block")
    script.command(Direct(ME, Directives(1)), "directed to 2 slots")
    script.later(500).block_ended(4, "open 1 at priority -3")


def test_a_smaller_capacity_hands_over_the_surplus_once() -> None:
    script = Script.serving(2).deliver(2, 7, *STARTED).deliver(4, 8, *SECOND)
    script.command(Direct(ME, Directives(1, capacity=1)), "directed to 1 slots", "cancel a block", "cancel a block")
    script.block_ended(2).block_ended(4, "cancel").wake()
    script.stopped(7, "report handed_over_for 1.0", "requeue 7", "close a channel")
    assert (script.machine.blocks.held, script.machine.slots.held) == (1, 1)


def test_an_unreadable_message_uses_a_slot_until_it_is_parked() -> None:
    script = Script.serving(1)
    script.expect(script.machine.on_unreadable(2, script.now))
    assert (script.machine.blocks.held, script.machine.slots.held) == (1, 0)
    script.expect(script.machine.on_freed(2, script.now))
    assert script.machine.blocks.held == 0


def test_a_service_that_stops_hands_everything_over_and_opens_nothing() -> None:
    script = Script.serving(2).deliver(2, 7, *STARTED)
    script.expect(script.machine.on_drain(script.now), "cancel")
    assert script.machine.intent == "draining"
    script.block_ended(2).block_ended(4).later(5000)
    script.expect(script.machine.on_abort_all(script.now), "abort")
    script.stopped(7, "report handed_over 1.0", "requeue 7").later(60_000).wake()


def test_questions_of_managers_are_passed_on_if_they_are_for_this_service() -> None:
    script, other = Script.serving(1), UUID(int=1)
    script.command(Describe(ME, [UUID(int=1)]), "describe 1").command(Describe(other, []))
    script.command(ListHeld(ME, [Range()]), "list 1").command(ListHeld(other, [Range()]))


def test_a_settled_message_frees_its_slot_once() -> None:
    script = Script.serving(1).deliver(2, 7, *STARTED).stopped(7, "settle completed 1.0")
    assert script.machine.blocks.held == 1
    run = work(7)
    confirmed = RunReport(run.id, epoch_of(1, 0), "completed")
    script.expect(script.machine.on_confirmed(confirmed, script.now), "ack 7")
    script.expect(script.machine.on_confirmed(confirmed, script.now))
    assert script.machine.blocks.held == 0


def active_of_single_pool() -> Script:
    script = Script.serving(5, single=True)
    script.deliver(2, 7, *STARTED)
    return script.deliver(2, 8, *SECOND)


def test_a_cordon_in_a_single_pool_hands_everything_over() -> None:
    script = active_of_single_pool()
    script.command(Direct(ME, Directives(1, cordoned=True)), "directed to 5 slots", "cancel a block")
    script.block_ended(2, "cancel", "cancel").wake()
    script.stopped(7, "report handed_over_for 1.0", "requeue 7")
    script.stopped(8, "report handed_over_for 1.0", "requeue 8", "close a channel")
    script.later(60_000).wake()
    script.command(Direct(ME, Directives(2)), "directed to 5 slots", "open 5")


def test_a_new_capacity_in_a_single_pool_hands_everything_over() -> None:
    script = active_of_single_pool()
    script.command(Direct(ME, Directives(1, capacity=4000)), "directed to 1000 slots", "cancel a block")
    script.block_ended(2, "cancel", "cancel")
    script.stopped(7, "report handed_over_for 1.0", "requeue 7")
    script.stopped(8, "report handed_over_for 1.0", "requeue 8", "open 1000")


def test_a_service_of_a_single_pool_hands_over_no_single_observer() -> None:
    script = active_of_single_pool()
    script.command(HandOver(ME, 10.0, "move", [UUID(int=7)])).command(HandOver(ME, 10.0, "rebalance", down_to=1))
    script.later(5000).wake()
    assert script.machine.blocks.held == 2
