"""The time of the database, as a service knows it."""

import pytest

from everwatch._database_clock import DatabaseClock
from everwatch._effects import Now


def at(mono: float, wall: int = 0) -> Now:
    return Now(mono, wall, 0.5)


def test_the_wall_clock_counts_before_the_first_announcement() -> None:
    clock = DatabaseClock()
    assert clock.mono_of(9_000, at(5.0, wall=8_000)) == 6.0
    assert [clock.has_reached(9_000, at(5.0, wall)) for wall in (8_999, 9_000)] == [False, True]
    # The first announcement counts even if it is below the wall clock.
    clock.announce(1_000, at(5.0, wall=8_000))
    assert clock.mono_of(9_000, at(5.0, wall=8_000)) == 13.0


def test_an_announcement_that_was_late_does_not_set_the_clock_back() -> None:
    clock = DatabaseClock()
    clock.announce(10_000, at(0.0))
    # It waited for 20 seconds: only the drift that is possible in a minute counts.
    clock.announce(50_000, at(60.0))
    assert clock.mono_of(130_000, at(60.0)) == pytest.approx(120.060)
    # The next one counts from the announcement before it.
    clock.announce(110_000, at(120.0))
    assert clock.mono_of(130_000, at(120.0)) == pytest.approx(120.120)


def test_an_announcement_that_is_ahead_counts_at_once() -> None:
    clock = DatabaseClock()
    clock.announce(10_000, at(0.0))
    clock.announce(75_000, at(60.0))
    assert clock.mono_of(85_000, at(60.0)) == 70.0
    assert [clock.has_reached(85_000, at(mono)) for mono in (69.999, 70.0)] == [False, True]


def test_a_clock_that_drifts_is_followed_slowly() -> None:
    clock = DatabaseClock()
    clock.announce(10_000, at(0.0))
    # It is 30 ms behind after a minute, which is less than the drift that is possible.
    clock.announce(69_970, at(60.0))
    assert clock.mono_of(79_970, at(60.0)) == pytest.approx(70.0)
