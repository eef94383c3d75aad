"""How runs end: revocations, ``finish_at``, windows, time-outs, errors of the code, and handing back."""

from uuid import UUID

from everwatch import _wire as wire
from everwatch._clock import show_duration, timestamp
from everwatch._effects import CancelRun, Done, Effect, Now, Outcome, Report, Requeue
from everwatch._phases import Announced, Backoff, Ending, Over, Refusing, Running, Waiting, Why
from everwatch._slot_table import SlotTable
from everwatch._wire import Event, RunReport


class SlotEnds(SlotTable):
    """The slots of one session, with the steps that end a run."""

    def _end_run(self, observer: UUID, below: int, now: Now, effects: list[Effect]) -> None:
        """Ends the held run of the observer if its epoch is below ``below``."""
        slot = self._slots.get(observer)
        if slot is None or slot.epoch >= below:
            return
        match slot.phase:
            case Announced() | Waiting() | Backoff() | Refusing():
                self._end_without_code(observer, "stopped", now, effects)
            case Running() as running:
                self._end_code(observer, running, Why.REVOCATION, now, effects)
            case Ending() as ending:
                ending.why = Why.REVOCATION
            case Over() as over:
                over.event = "stopped"
            case _:
                pass

    def _finish(self, observer: UUID, ends_at: int, now: Now, effects: list[Effect]) -> None:
        """Ends the held run of the observer because its ``finish_at`` or the end of its window has come."""
        slot = self._slots[observer]
        is_finish = slot.work is not None and slot.work.finish_at == ends_at
        why = Why.FINISH if is_finish else Why.WINDOW_CLOSED
        match slot.phase:
            case Announced() | Waiting() | Backoff() | Refusing():
                self._end_without_code(observer, wire.finished(ends_at), now, effects)
            case Running() as running:
                self._end_code(observer, running, why, now, effects)
            case Ending(why=Why.HAND_OVER | Why.TIME_OUT) as ending:
                ending.why = why
            case _:
                pass

    def _end_without_code(self, observer: UUID, event: Event, now: Now, effects: list[Effect]) -> None:
        slot = self._slots[observer]
        if slot.apart_until > now.mono:
            # Settled at once, the next generation would start beside the older run on another service.
            self._set_phase(observer, Over(slot.apart_until, event))
        else:
            self._settle(observer, event, effects)

    def _end_code(
        self, observer: UUID, running: Running, why: Why, now: Now, effects: list[Effect], *, cause: str | None = None
    ) -> None:
        work = self._slots[observer].work
        grace = 0.0 if work is None else work.grace
        self._set_phase(observer, Ending(running.attempt, running.since, now.mono + grace, why, cause))
        effects.append(CancelRun(observer, why.reason))

    def _on_code_stopped(
        self, observer: UUID, ending: Ending, outcome: Outcome, now: Now, effects: list[Effect]
    ) -> None:
        """The code that was told to stop has ended: why it was told decides what follows."""
        slot = self._slots[observer]
        match ending.why, outcome:
            case Why.HAND_OVER, _:
                self._give_back(observer, wire.handed_over(ending.cause), now, effects)
            case Why.TIME_OUT, _ if slot.work is not None and slot.work.attempt_timeout is not None:
                error = f"timed out after {show_duration(slot.work.attempt_timeout)} (attempt_timeout)"
                self._retry(observer, ending.attempt, error, now, effects)
            case Why.FINISH, Done(result=result) if result is not None:
                self._settle(observer, wire.completed_with(result), effects)
            case ((Why.FINISH | Why.WINDOW_CLOSED), _) if slot.ends_at is not None:
                self._settle(observer, wire.finished(slot.ends_at), effects)
            case _:
                self._settle(observer, "stopped", effects)

    def _on_error(self, observer: UUID, running: Running, error: str, now: Now, effects: list[Effect]) -> None:
        """The code failed by itself; after a healthy time, this counts as the failure of its first start."""
        work, attempt = self._slots[observer].work, running.attempt
        reset_after = None if work is None else work.retry.reset_after
        if reset_after is not None and now.mono - running.since >= reset_after:
            attempt = 1
        self._retry(observer, attempt, error, now, effects)

    def _retry(self, observer: UUID, attempt: int, error: str, now: Now, effects: list[Effect]) -> None:
        """This start has failed: the retry policy decides what follows."""
        slot = self._slots[observer]
        if slot.work is None:
            return
        error, pause = wire.shortened(error), slot.work.retry.after(attempt, now.chance)
        if pause is None:
            self._settle(observer, {"failed": {"error": error, "attempts": attempt}}, effects)
            return
        next_at = timestamp(now.wall + round(pause * 1000))
        event: Event = {"errored": {"attempt": attempt, "error": error, "next_at": next_at}}
        effects.append(Report(RunReport(observer, slot.epoch, event)))
        self._set_phase(observer, Backoff(attempt, now.mono + pause, event))

    def _give_back(self, observer: UUID, event: Event, now: Now, effects: list[Effect]) -> None:
        slot = self._slots.pop(observer)
        effects.append(Report(RunReport(observer, slot.epoch, event)))
        effects.append(Requeue(slot.receipt))
        if slot.successor is not None:
            self._admit(slot.successor, now, effects)
