"""HG-11: what becomes of the copies that have lost, with copies and a clock in place of real ones."""

from __future__ import annotations

import pytest

from grpc_backoff.decide.calls.resets import MOST, PER_SECOND, resets_of
from grpc_backoff.engine.losers import Losers

BEGAN = 100.0


class Calls:
    """A channel's environment whose clock the test moves."""

    def __init__(self):
        self.losing = set()
        self.closing = False
        self.at = BEGAN
        self.timers = []

    def now(self):
        return self.at

    def call_at(self, at, work):
        timer = Timer(at, work)
        self.timers.append(timer)
        return timer

    def move(self, seconds):
        """Move the clock, and fire each timer at its time."""
        end = self.at + seconds
        while due := [timer for timer in self.timers if not timer.over and timer.at <= end]:
            first = min(due, key=lambda timer: timer.at)
            first.over, self.at = True, first.at
            first.work()
        self.at = end


class Timer:
    def __init__(self, at, work):
        self.at, self.work, self.over = at, work, False

    def cancel(self):
        self.over = True


class Copy:
    """A copy that notes when it is cancelled."""

    def __init__(self, calls):
        self._calls = calls
        self.cancelled = None

    def done(self):
        return self.cancelled is not None

    def cancel(self):
        assert self.cancelled is None
        self.cancelled = self._calls.at


class Connection:
    pass


@pytest.fixture
def calls():
    return Calls()


def nothing_is_left(calls):
    return not calls.losing and all(timer.over for timer in calls.timers)


def lose(calls, copies, connection, at=BEGAN + 1):
    losers = Losers(calls, {number: (copy, connection) for number, copy in enumerate(copies, 1)})
    losers.leave(at)
    return losers


def test_left_to_end(calls):
    """HG-11: copies that end in time are not cancelled; the others are, at the time that was set."""
    first, second, third = copies = [Copy(calls) for _ in range(3)]
    losers = lose(calls, copies, Connection())
    calls.move(0.9)
    losers.ended(1)
    second.done = lambda: True  # ended, but has yet to be reported
    calls.move(1)
    assert [copy.cancelled for copy in (first, second, third)] == [None, None, BEGAN + 1]
    losers.ended(2)  # may come late
    assert nothing_is_left(calls)


def test_paced_for_each_connection(calls):
    """HG-11: what a connection does not bear at once is cancelled later, and what has ended by then is not."""
    one, other = Connection(), Connection()
    many = [[Copy(calls)] for _ in range(MOST + 3)]
    waiting = [lose(calls, copies, one) for copies in many]
    elsewhere = [Copy(calls)]
    lose(calls, elsewhere, other)
    calls.move(1)
    assert [copy.cancelled for (copy,) in many] == [BEGAN + 1] * MOST + [None] * 3
    assert elsewhere[0].cancelled == BEGAN + 1
    assert (len(resets_of(one).waiting), len(resets_of(other).waiting)) == (3, 0)
    waiting[MOST].ended(1)
    calls.move(3600)
    last = [copy.cancelled for (copy,) in many[MOST:]]
    assert last == [None, *(pytest.approx(BEGAN + 1 + n / PER_SECOND, abs=0.03) for n in (1, 2))]
    assert nothing_is_left(calls)
    assert not resets_of(one).waiting


def test_some_of_a_call_at_once(calls):
    """HG-11: if only one copy of a call waits for its connection, the others are cancelled in time."""
    one, other = Connection(), Connection()
    for _ in range(MOST):
        lose(calls, [Copy(calls)], one)
    late, soon = Copy(calls), Copy(calls)
    Losers(calls, {1: (late, one), 2: (soon, other)}).leave(BEGAN + 1)
    calls.move(1)
    assert (late.cancelled, soon.cancelled) == (None, BEGAN + 1)
    calls.move(1)
    assert late.cancelled == pytest.approx(BEGAN + 1 + 1 / PER_SECOND, abs=0.03)
    assert nothing_is_left(calls)


def test_ended_on_another_thread(calls):
    """HG-11: a copy that ends just as its cancellation is put off does not count as one that waits."""
    connection = Connection()
    for _ in range(MOST):
        lose(calls, [Copy(calls)], connection)
    copy = Copy(calls)
    losers = lose(calls, [copy], connection)
    copy.done = lambda: losers.ended(1)
    calls.move(1)
    assert not resets_of(connection).waiting
    calls.move(1)
    assert copy.cancelled is None
    assert nothing_is_left(calls)


@pytest.mark.parametrize("how", ["call cancelled", "closing", "closed later"])
def test_at_once(calls, how):
    """HG-6: a call that is cancelled, and a channel that closes, cancel every copy at once."""
    copies = [Copy(calls), Copy(calls)]
    calls.closing = how == "closing"
    losers = lose(calls, copies, Connection(), None if how == "call cancelled" else BEGAN + 1)
    if how == "closed later":
        losers.cancel()
    assert [copy.cancelled for copy in copies] == [BEGAN, BEGAN]
    assert nothing_is_left(calls)
