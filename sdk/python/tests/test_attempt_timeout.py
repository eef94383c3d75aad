"""Transcripts of the slots: attempts that run for longer than ``attempt_timeout``."""

from uuid import UUID

import pytest

from everwatch._effects import Aborted, Done, Errored, Failed, Outcome, Report, Settle
from everwatch._wire import Retry, epoch_of, held
from transcripts import SlotScript, work

RUN, OLD = epoch_of(1, 0), epoch_of(2, 0)
STARTED = ("start 1.0 attempt 1", "report started 1.0")
TIMED_OUT = "timed out after 1m 30s (attempt_timeout)"


def limited(retry: Retry | None = None) -> SlotScript:
    """Observer 1 runs, for at most 90 seconds."""
    read = work(attempt_timeout=90.0) if retry is None else work(attempt_timeout=90.0, retry=retry)
    return SlotScript().deliver(7, read, 0, *STARTED)


def timing_out() -> SlotScript:
    """The same, and it was told to stop because it is over."""
    return limited().at(89_999).wake().at(90_000).wake("cancel timed_out")


@pytest.mark.parametrize("outcome", [Done(), Done({"n": 1}), Failed("no"), Errored("x"), Aborted()])
def test_whatever_the_code_returns_a_timed_out_attempt_is_an_error(outcome: Outcome) -> None:
    script = timing_out().at(91_000)
    [effect] = script.slots.on_ended(UUID(int=1), RUN, outcome, script.now)
    next_at = "1970-01-01T00:01:32.000Z"
    assert isinstance(effect, Report)
    assert effect.run.event == {"errored": {"attempt": 1, "error": TIMED_OUT, "next_at": next_at}}
    script.at(91_999).wake().at(92_000).wake("start 1.0 attempt 2", "report started 1.0")
    # Each attempt is counted from its own start; the last one fails the observer.
    script.at(181_999).wake().at(182_000).wake("cancel timed_out")
    [effect] = script.slots.on_ended(UUID(int=1), RUN, outcome, script.now)
    assert isinstance(effect, Settle)
    assert effect.run.event == {"failed": {"error": TIMED_OUT, "attempts": 2}}
    script.confirmed(RUN, "ack 7")
    assert script.slots.is_empty


def test_code_that_ignores_its_time_out_is_aborted_after_its_grace() -> None:
    script = timing_out().at(99_999).wake().at(100_000).wake("abort").wake()
    assert script.slots.inventory(script.now)[0].event == held("being ended")
    script.ended(RUN, Aborted(), "report errored 1.0")


def test_code_that_ends_in_time_has_no_time_out() -> None:
    script = limited().at(89_999).ended(RUN, Errored("x"), "report errored 1.0")
    script.at(90_000).wake().at(90_999).wake("start 1.0 attempt 2", "report started 1.0")
    script.at(180_000).ended(RUN, Done(), "settle completed 1.0").at(200_000).wake()


def test_without_an_attempt_timeout_an_attempt_runs_forever() -> None:
    script = SlotScript().run(7, 1, 0, *STARTED)
    assert script.slots.next_deadline(script.now) is None


def test_a_timed_out_attempt_never_counts_as_healthy() -> None:
    policy = Retry("exponential", first=1.0, max=1.0, attempts=2, reset_after=10.0)
    script = limited(policy).at(20_000).ended(RUN, Errored("x"), "report errored 1.0")
    script.at(21_000).wake("start 1.0 attempt 2", "report started 1.0").at(111_000).wake("cancel timed_out")
    # After 90 seconds, another error would count as that of attempt 1.
    script.ended(RUN, Done(), "settle failed 1.0")


def test_a_revocation_during_a_time_out_stops_the_run() -> None:
    timing_out().revoke(OLD).ended(RUN, Errored("x"), "settle stopped 1.0").confirmed(RUN, "ack 7")


def test_a_hand_over_or_a_drain_during_a_time_out_gives_the_message_back() -> None:
    timing_out().hand_over().ended(RUN, Errored("x"), "report handed_over_for 1.0", "requeue 7")
    script = timing_out().drain().at(100_000).wake("abort")
    script.ended(RUN, Aborted(), "report handed_over 1.0", "requeue 7")


def test_an_attempt_that_times_out_counts_as_one_that_stays() -> None:
    script = SlotScript()
    script.at(1_000).deliver(1, work(1), 0, *STARTED)
    script.at(2_000).deliver(2, work(2, attempt_timeout=5.0), 0, *STARTED)
    script.at(3_000).deliver(3, work(3), 0, *STARTED).at(7_000).wake("cancel timed_out")
    # The order is that of their starts: 3, then 2, which was told to stop already.
    script.expect(script.slots.on_hand_over_down_to(2, "drain", script.now), "cancel")
    script.expect(script.slots.on_hand_over_down_to(1, "drain", script.now))
    ended = script.slots.on_ended(UUID(int=2), RUN, Errored("x"), script.now)
    script.expect(ended, "report handed_over_for 1.0", "requeue 2")
    script.expect(script.slots.on_hand_over_down_to(1, "drain", script.now))
