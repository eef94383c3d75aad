"""Transcripts of the slots: observers that end at ``finish_at``."""

from uuid import UUID

import pytest

from everwatch._effects import Aborted, Done, Errored, Failed, Outcome, Settle
from everwatch._turns import Pace
from everwatch._wire import Event, WorkHeader, epoch_of, held
from transcripts import SlotScript, work

ID, RUN, OLD = UUID(int=1), epoch_of(1, 0), epoch_of(2, 0)
STARTED = ("start 1.0 attempt 1", "report started 1.0")
# Without an announcement, the wall clock counts, which the scripts set together with the monotonic clock.
AT = 60_000
FINISHED: Event = {"finished": {"at": "1970-01-01T00:01:00.000Z"}}


def running() -> SlotScript:
    """Observer 1 runs, until a minute has passed."""
    return SlotScript().deliver(7, work(finish_at=AT), 0, *STARTED)


def finishing() -> SlotScript:
    """The same, and it was told to stop because the minute has passed."""
    return running().at(59_999).wake().at(AT).wake("cancel finished")


def settled(script: SlotScript, outcome: Outcome) -> Event:
    """The settlement that follows the end of the code."""
    [effect] = script.slots.on_ended(ID, RUN, outcome, script.now)
    assert isinstance(effect, Settle)
    script.confirmed(RUN, "ack 7")
    assert script.slots.is_empty
    return effect.run.event


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (Done(), FINISHED),
        (Failed("no"), FINISHED),
        (Errored("x"), FINISHED),
        (Aborted(), FINISHED),
        (Done({"n": 1}), {"completed_with": {"result": '{"n": 1}'}}),
    ],
)
def test_a_running_observer_is_told_to_stop_and_is_finished_unless_it_has_a_result(
    outcome: Outcome, event: Event
) -> None:
    script = finishing()
    assert script.slots.inventory(script.now)[0].event == held("being ended")
    assert settled(script, outcome) == event


def test_code_that_ignores_its_finish_is_aborted_after_its_grace() -> None:
    finishing().at(69_999).wake().at(70_000).wake("abort").ended(RUN, Aborted(), "settle finished 1.0")


def test_code_that_ends_by_itself_before_is_not_finished() -> None:
    script = running().at(1_000).ended(RUN, Done(), "settle completed 1.0").at(AT).wake()
    script.confirmed(RUN, "ack 7").wake()
    assert script.slots.next_deadline(script.now) is None


def test_an_announced_observer_finishes_without_a_start() -> None:
    script = SlotScript()
    script.slots.on_crash_looping([ID], script.now)
    script.deliver(7, work(finish_at=AT), 0, "announce held 1.0").at(AT).wake("settle finished 1.0")
    script.slots.on_announced(ID, RUN, script.now)
    script.confirmed(RUN, "ack 7").at(200_000).wake()


def test_a_waiting_observer_finishes_without_a_start() -> None:
    script = SlotScript(pace=Pace.of(0.01, {})).deliver(2, work(2), 0, *STARTED)
    script.deliver(7, work(finish_at=AT), 0, "report held 1.0").at(AT).wake("settle finished 1.0")
    script.confirmed(RUN, "ack 7").at(300_000).wake()


def test_what_would_start_at_the_same_moment_does_not() -> None:
    script = SlotScript().deliver(7, work(finish_at=1000), 0, *STARTED)
    script.ended(RUN, Errored("x"), "report errored 1.0").at(1000).wake("settle finished 1.0")


def test_an_observer_in_back_off_finishes_without_another_start() -> None:
    script = running().at(59_500).ended(RUN, Errored("x"), "report errored 1.0").at(AT).wake("settle finished 1.0")
    script.at(60_500).wake().confirmed(RUN, "ack 7")


def test_a_refused_observer_finishes() -> None:
    script = SlotScript()
    read = work(kind="other", finish_at=1_500)
    for _ in range(2):
        script.deliver(7, read, 0, "step back until 2", "report held 1.0").wake("report refused 1.0", "requeue 7")
    script.at(1_000).deliver(7, read, 0, "step back until 4", "report held 1.0").at(1_500).wake("settle finished 1.0")
    script.confirmed(RUN, "ack 7").at(2_000).wake()


def test_an_observer_whose_message_is_not_readable_here_is_refused_as_before() -> None:
    foreign = WorkHeader(ID, 1, "new", "message version 9 is unknown here")
    script = SlotScript().at(AT).deliver(7, foreign, 0, "step back until 62", "report held 1.0")
    script.wake("report refused 1.0", "requeue 7")


@pytest.mark.parametrize("kind", ["ticker", "other"])
def test_a_message_that_arrives_too_late_is_settled_unstarted(kind: str) -> None:
    read = work(finish_at=AT, kind=kind)
    for at in (AT, AT + 1):
        script = SlotScript().at(at)
        [effect] = script.slots.on_delivered(7, read, 0, script.now)
        assert isinstance(effect, Settle)
        assert effect.run.event == FINISHED
        script.confirmed(RUN, "ack 7")
        assert script.slots.is_empty


def test_revocations_and_a_drain_come_before_the_finish_of_a_message_that_arrives() -> None:
    SlotScript().at(AT).revoke(OLD).deliver(7, work(finish_at=AT), 0, "settle stopped 1.0")
    SlotScript().at(AT).drain().deliver(7, work(finish_at=AT), 0, "requeue 7")


@pytest.mark.parametrize("arrives_late", [True, False])
def test_a_redelivery_without_overlap_finishes_no_sooner_than_it_would_start(*, arrives_late: bool) -> None:
    read = work(forbids_overlap=True, finish_at=300)
    script = SlotScript()
    if arrives_late:
        script.at(300).deliver(7, read, 1)
    else:
        script.deliver(7, read, 1, "report held 1.1").at(300).wake()
    assert script.slots.inventory(script.now)[0].event == held("being ended")
    over = 1_300 if arrives_late else 1_000
    script.at(over - 1).wake().at(over).wake("settle finished 1.1").confirmed(epoch_of(1, 1), "ack 7")


def test_a_revocation_while_the_older_run_may_still_end_stops_it_instead() -> None:
    script = SlotScript().deliver(7, work(forbids_overlap=True, finish_at=300), 1, "report held 1.1")
    script.at(300).wake().revoke(OLD).at(1_000).wake("settle stopped 1.1")
    script = SlotScript().deliver(7, work(forbids_overlap=True, finish_at=300), 1, "report held 1.1").revoke(OLD)
    script.at(300).wake().at(1_000).wake("settle stopped 1.1")


@pytest.mark.parametrize("result", [None, 5])
def test_a_hand_over_becomes_a_finish_without_a_second_cancel(result: int | None) -> None:
    script = running().at(55_000).hand_over("cancel").at(AT).wake()
    assert settled(script, Done(result)) == (FINISHED if result is None else {"completed_with": {"result": "5"}})
    script = running().at(55_000).drain("cancel").at(AT).wake()
    # The grace counts from the one cancel.
    script.at(65_000).wake("abort")
    assert settled(script, Aborted()) == FINISHED


def test_a_time_out_becomes_a_finish_without_a_second_cancel() -> None:
    script = SlotScript().deliver(7, work(attempt_timeout=55.0, finish_at=AT), 0, *STARTED)
    script.at(55_000).wake("cancel timed_out").at(AT).wake()
    assert settled(script, Errored("x")) == FINISHED
    script = SlotScript().deliver(7, work(attempt_timeout=60.0, finish_at=AT), 0, *STARTED)
    script.at(AT).wake("cancel finished").ended(RUN, Errored("x"), "settle finished 1.0")


def test_a_revocation_stays_the_end_of_a_run() -> None:
    running().revoke(OLD, "cancel").at(AT).wake("abort").ended(RUN, Done(5), "settle stopped 1.0")
    finishing().revoke(OLD).ended(RUN, Done(5), "settle stopped 1.0").confirmed(RUN, "ack 7")


def test_a_hand_over_and_a_drain_do_not_change_a_finish() -> None:
    finishing().hand_over().drain().ended(RUN, Done(), "settle finished 1.0")
    script = finishing()
    script.expect(script.slots.on_hand_over_down_to(0, "drain", script.now))


def test_the_next_generation_finishes_after_the_earlier_is_settled() -> None:
    script = running().at(59_000).deliver(8, work(1, 2, finish_at=AT), 0, "cancel").at(AT).wake()
    script.ended(RUN, Done(), "settle stopped 1.0").confirmed(RUN, "ack 7", "settle finished 2.0")
    script.confirmed(OLD, "ack 8")
    assert script.slots.is_empty


def test_a_new_time_of_the_database_moves_the_finish() -> None:
    script = running()
    assert script.slots.next_deadline(script.now) == 60.0
    script.slots.clock.announce(20_000, script.now)
    assert script.slots.next_deadline(script.now) == 40.0
    script.at(39_999).wake().at(40_000).wake("cancel finished")


def test_a_message_that_returns_finishes_once() -> None:
    script = running().hand_over("cancel").ended(RUN, Done(), "report handed_over_for 1.0", "requeue 7")
    assert script.slots.next_deadline(script.now) is None
    script.deliver(8, work(finish_at=AT), 1, "start 1.1 attempt 1", "report started 1.1")
    script.at(AT).wake("cancel finished").ended(epoch_of(1, 1), Done(), "settle finished 1.1")


def test_finishes_of_runs_that_are_over_do_not_add_up() -> None:
    script = SlotScript()
    for generation in range(1, 3000):
        epoch = epoch_of(generation, 0)
        script.slots.on_delivered(generation, work(1, generation, finish_at=AT + generation), 0, script.now)
        script.slots.on_ended(ID, epoch, Done(), script.now)
        script.slots.on_confirmed(ID, epoch, script.now)
    assert len(script.slots._finishes) <= 1002
    assert script.slots.next_deadline(script.now) is None


def test_a_run_ends_with_its_window_and_its_result_is_dropped() -> None:
    read = work(closes_at=AT, finish_at=AT + 1)
    script = SlotScript().deliver(7, read, 0, *STARTED).at(AT).wake("cancel window_closed")
    script.ended(RUN, Done({"n": 1}), "settle finished 1.0")
    SlotScript().at(AT).deliver(7, read, 0, "settle finished 1.0")
