"""Transcripts of the slots; they are those of the reference implementation."""

from dataclasses import replace
from uuid import UUID

import pytest

from everwatch._effects import Aborted, Done, Errored, Failed, SlotPolicy
from everwatch._turns import Pace
from everwatch._wire import WorkHeader, epoch_of, held
from transcripts import POLICY, SlotScript, work

OLD = epoch_of(2, 0)
STARTED = ("start 1.0 attempt 1", "report started 1.0")


def test_a_run_goes_from_delivery_to_a_confirmed_settlement() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED).revoke(OLD, "cancel").revoke(OLD)
    script.ended(epoch_of(1, 0), Done(), "settle stopped 1.0").confirmed(epoch_of(1, 0), "ack 7")
    script.confirmed(epoch_of(1, 0))
    assert script.slots.is_empty


def test_managers_learn_when_a_message_that_counts_towards_limits_is_gone() -> None:
    script = SlotScript().deliver(7, work(counts=True), 0, *STARTED).revoke(OLD, "cancel")
    script.ended(epoch_of(1, 0), Done(), "settle stopped 1.0")
    script.confirmed(epoch_of(1, 0), "ack 7, then report released 1.0")
    script.deliver(8, work(counts=True), 1, "settle stopped 1.1")
    script.confirmed(epoch_of(1, 1), "ack 8, then report released 1.1")


def test_no_run_below_a_revocation_starts() -> None:
    script = SlotScript().revoke(OLD).run(7, 1, 3, "settle stopped 1.3").confirmed(epoch_of(1, 3), "ack 7")
    script.run(8, 2, 0, "start 2.0 attempt 1", "report started 2.0")


def test_an_error_is_retried_and_the_last_attempt_gives_up() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED).ended(epoch_of(1, 0), Errored("x"), "report errored 1.0")
    script.at(999).wake().at(1000).wake("start 1.0 attempt 2", "report started 1.0")
    script.ended(epoch_of(1, 0), Errored("x"), "settle failed 1.0").confirmed(epoch_of(1, 0), "ack 7")


def test_results_and_failures_of_the_code_settle() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED)
    script.ended(epoch_of(1, 0), Done({"n": 1}), "settle completed_with 1.0").confirmed(epoch_of(1, 0), "ack 7")
    script.run(8, 2, 0, "start 2.0 attempt 1", "report started 2.0")
    script.ended(epoch_of(2, 0), Failed("no"), "settle failed 2.0")


def test_code_that_does_not_end_is_aborted_after_its_grace() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED).revoke(OLD, "cancel").at(9_999).wake()
    script.at(10_000).wake("abort").wake()
    script.ended(epoch_of(1, 0), Aborted(), "settle stopped 1.0").confirmed(epoch_of(1, 0), "ack 7")


def test_a_drain_hands_over_all_observers_and_takes_no_more() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED)
    script.expect(script.slots.on_drain(script.now), "cancel")
    script.ended(epoch_of(1, 0), Done(), "report handed_over 1.0", "requeue 7").run(8, 1, 1, "requeue 8")


def test_a_redelivery_without_overlap_waits_twice_the_fence_grace() -> None:
    script = SlotScript().deliver(7, work(forbids_overlap=True), 1, "report held 1.1").at(999).wake()
    script.at(1000).wake("start 1.1 attempt 1", "report started 1.1")


@pytest.mark.parametrize("revoked_first", [True, False])
def test_a_redelivery_without_overlap_ends_no_sooner_than_it_would_start(*, revoked_first: bool) -> None:
    script = SlotScript()
    if revoked_first:
        script.revoke(OLD).deliver(7, work(forbids_overlap=True), 1)
    else:
        script.deliver(7, work(forbids_overlap=True), 1, "report held 1.1").at(300).revoke(OLD)
    script.at(999).wake().at(1000).wake("settle stopped 1.1").confirmed(epoch_of(1, 1), "ack 7")


def test_the_later_copy_starts_after_the_earlier_is_settled() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED).run(8, 2, 0, "cancel")
    script.ended(epoch_of(1, 0), Done(), "settle stopped 1.0")
    script.confirmed(epoch_of(1, 0), "ack 7", "start 2.0 attempt 1", "report started 2.0")
    script.run(9, 1, 1, "settle stopped 1.1").confirmed(epoch_of(1, 1), "ack 9")


def test_a_message_that_is_held_and_delivered_again_means_that_the_session_is_lost() -> None:
    SlotScript().run(7, 1, 0, *STARTED).run(8, 1, 1, "lost 1.0")


def test_a_refused_message_passes_all_consumers_then_waits_longer_each_round() -> None:
    foreign = WorkHeader(UUID(int=1), 1, "new", "message version 9 is unknown here")
    script = SlotScript()
    at = 0
    for pause in [0, 0, *[1000, 0] * 8, 2000, 0, 4000]:
        at += pause
        script.deliver(7, foreign, 0, f"step back until {at / 1000 + 2:g}", "report held 1.0")
        if pause:
            script.at(at - 1).wake()
        script.at(at).wake("report refused 1.0", "requeue 7")
    # Long after, because it has run elsewhere, a refusal counts as the first again.
    at += 121_000
    script.at(at).deliver(7, foreign, 0, f"step back until {at / 1000 + 2:g}", "report held 1.0")
    script.wake("report refused 1.0", "requeue 7")
    script.revoke(OLD).deliver(7, foreign, 0, "settle stopped 1.0")


def test_a_kind_that_is_not_offered_is_refused() -> None:
    script = SlotScript().deliver(7, work(kind="other"), 0, "step back until 2", "report held 1.0")
    event = script.slots.inventory(script.now)[0].event
    assert event == held("kind `other` is not offered by this service", refuses=True)


def test_a_weight_above_the_greatest_is_refused() -> None:
    script = SlotScript().deliver(7, replace(work(), weight=2), 0, "step back until 2", "report held 1.0")
    event = script.slots.inventory(script.now)[0].event
    assert event == held("weight 2 is above this service's weight_max, 1", refuses=True)


def test_a_late_input_of_an_old_run_has_no_effect() -> None:
    script = SlotScript().run(7, 2, 0, "start 2.0 attempt 1", "report started 2.0")
    script.ended(epoch_of(1, 0), Done()).confirmed(epoch_of(1, 0))


def test_suspects_are_announced_and_start_one_at_a_time() -> None:
    script = SlotScript()
    script.slots.on_crash_looping([UUID(int=1), UUID(int=2)], script.now)
    script.run(1, 1, 2, "announce held 1.2").deliver(2, work(2), 0, "announce held 1.0").at(100)
    for observer, epoch in [(1, epoch_of(1, 1)), (1, epoch_of(1, 2)), (2, epoch_of(1, 0))]:
        script.slots.on_announced(UUID(int=observer), epoch, script.now)
    # The chance is one half, which selects the second of two.
    script.at(1_100).wake("start 1.0 attempt 1", "report started 1.0").at(61_099).wake()
    script.at(61_100).wake("start 1.2 attempt 1", "report started 1.2")


def test_suspects_start_at_once_when_the_cause_is_found() -> None:
    script = SlotScript()
    script.slots.on_crash_looping([UUID(int=1)], script.now)
    script.run(1, 1, 2, "announce held 1.2")
    script.slots.on_announced(UUID(int=1), epoch_of(1, 2), script.now)
    script.at(500)
    script.slots.on_crash_looping([UUID(int=2)], script.now)
    script.wake("start 1.2 attempt 1", "report started 1.2")


def test_a_late_confirm_of_an_announcement_acknowledges_nothing() -> None:
    script = SlotScript()
    script.slots.on_crash_looping([UUID(int=1)], script.now)
    script.run(1, 1, 2, "announce held 1.2").revoke(OLD, "settle stopped 1.2")
    script.slots.on_announced(UUID(int=1), epoch_of(1, 2), script.now)
    script.confirmed(epoch_of(1, 2), "ack 1")


def test_starts_beyond_the_rate_wait_and_are_reported() -> None:
    script = SlotScript(pace=Pace.of(0.1, {})).run(1, 1, 0, *STARTED)
    script.ended(epoch_of(1, 0), Errored("e"), "report errored 1.0").at(1000).wake()
    assert script.slots.inventory(script.now)[0].event == held("start rate")
    script.at(12_499).wake().at(12_500).wake("start 1.0 attempt 2", "report started 1.0")
    script.ended(epoch_of(1, 0), Done(), "settle completed 1.0").confirmed(epoch_of(1, 0), "ack 1")
    script.run(2, 2, 0, "report held 2.0").at(60_000).wake("start 2.0 attempt 1", "report started 2.0")


def test_the_observers_with_the_shortest_run_go_first() -> None:
    script = SlotScript()
    for number in range(1, 6):
        script.at(number * 1000).deliver(number, work(number), 0, *STARTED)
    went = script.slots.on_hand_over_down_to(3, "drain", script.now)
    assert [effect.id.int for effect in went] == [5, 4]  # type: ignore[union-attr]
    script.expect(script.slots.on_hand_over_down_to(3, "drain", script.now))


def test_readiness_is_reported_once_and_with_the_attempt_that_runs() -> None:
    script = SlotScript(SlotPolicy(POLICY.kinds, 0.5, 2, frozenset({"ticker"})))
    script.run(7, 1, 0, "start 1.0 attempt 1", "report starting 1.0")
    waits = {"starting": {"attempt": 1, "started_at": "1970-01-01T00:00:00.000Z"}}
    assert script.slots.inventory(script.now)[0].event == waits
    script.expect(script.slots.on_ready(UUID(int=1), epoch_of(1, 1)))
    script.expect(script.slots.on_ready(UUID(int=1), epoch_of(1, 0)), "report started 1.0")
    script.expect(script.slots.on_ready(UUID(int=1), epoch_of(1, 0)))
    is_ready = {"started": {"attempt": 1, "started_at": "1970-01-01T00:00:00.000Z"}}
    assert script.slots.inventory(script.now)[0].event == is_ready


def test_an_inventory_repeats_the_error_of_a_restarting_observer() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED).at(100).ended(epoch_of(1, 0), Errored("x"), "report errored 1.0")
    event = {"errored": {"attempt": 1, "error": "x", "next_at": "1970-01-01T00:00:01.100Z"}}
    assert script.at(600).slots.inventory(script.now)[0].event == event


def test_timers_of_phases_that_are_over_do_not_add_up() -> None:
    script = SlotScript()
    for generation in range(1, 3000):
        epoch = epoch_of(generation, 0)
        script.slots.on_delivered(generation, work(1, generation), 0, script.now)
        script.slots.on_revocations([(UUID(int=1), epoch_of(generation + 1, 0))], script.now)
        script.slots.on_ended(UUID(int=1), epoch, Done(), script.now)
        script.slots.on_confirmed(UUID(int=1), epoch, script.now)
    assert len(script.slots._timers) <= 1002
    assert script.slots.next_deadline(script.now) is None
