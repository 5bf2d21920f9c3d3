"""The checks of a channel: each passes for a channel that does everything right, and fails for its violation."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from grpc_backoff import AttemptStarted, Connected, Disconnected, Failure, Stage
from tests.interop_suite.servers import checks
from tests.interop_suite.servers.checks import CODE, Seen
from tests.interop_suite.servers.traffic import Call


def call(began, ended, code=CODE.OK, details="", *, wait_for_ready=False, unsent=False, deadline=3.0):
    return Call(wait_for_ready, began, began + deadline, ended, None if ended is None else code, details, unsent)


def started(at):
    return AttemptStarted(target="t", at=at, attempt=1, limit=1.0)


def connected(at):
    return Connected(target="t", at=at, attempt=1, took=0.01, connections=1)


def lost(at):
    gone = Failure(Stage.ESTABLISHED, "the peer closed it")
    return Disconnected(target="t", at=at, attempt=1, failure=gone, lived=1.0, counted_as_failure=False)


FIRST = (started(100.0), connected(100.01))
AGAIN = (started(102.9), connected(102.91))
BEFORE = (call(100.0, 100.02), call(100.8, 101.2))
WAITED = call(101.11, 102.92, wait_for_ready=True)
UNSENT = call(101.5, 101.5, CODE.UNAVAILABLE, unsent=True)
AFTER = (call(102.95, 102.96), call(103.0, 103.4))
RIGHT = Seen(
    calls=(*BEFORE, WAITED, UNSENT, *AFTER),
    events=(*FIRST, lost(101.1), *(started(101.1 + after) for after in (0.0, 0.2, 0.52, 1.03)), *AGAIN),
    began=100.0,
    struck=101.0,
    gone=101.1,
    back=102.6,
    over=104.0,
    state=grpc.ChannelConnectivity.READY,
)
KEPT = replace(RIGHT, events=FIRST)
STEADY = replace(RIGHT, calls=(*BEFORE, *AFTER))
NEVER = replace(RIGHT, calls=BEFORE)
CANCELLED = call(101.2, 102.2, CODE.CANCELLED, deadline=1.0)
RESET = call(101.2, 101.3, CODE.INTERNAL, "Stream removed (RST_STREAM (Received RST_STREAM with error code 2))")


def more(seen, *calls):
    return replace(seen, calls=(*seen.calls, *calls))


def noticed(seen):
    checks.check_noticed(seen, within=2.0)


@pytest.mark.parametrize(
    ("check", "seen"),
    [
        (checks.check_always, RIGHT),
        (checks.check_none_lost, RIGHT),
        (checks.check_waited, RIGHT),
        (checks.check_recovered, RIGHT),
        (checks.check_none_failed, STEADY),
        (noticed, RIGHT),
        (checks.check_stayed, KEPT),
    ],
)
def test_what_is_right_passes(check, seen):
    """CH-2: a channel that does everything right passes every check."""
    check(seen)


FAILING = replace(RIGHT, state=grpc.ChannelConnectivity.TRANSIENT_FAILURE)
FLOODING = replace(RIGHT, events=(*FIRST, lost(101.05), *(started(101.1 + n / 100) for n in range(100))))
TOO_SOON = replace(RIGHT, calls=(WAITED, *AFTER), events=(*FIRST, lost(100.05), started(100.06), connected(100.07)))
NOT_WAITED = call(101.5, 102.0, CODE.UNAVAILABLE, wait_for_ready=True)
NOT_SENT = call(101.05, 101.1, CODE.UNAVAILABLE, wait_for_ready=True, unsent=True)
ANSWERED = call(101.05, 101.06, wait_for_ready=True)  # before the loss
WRONG = {
    checks.check_always: [
        (more(RIGHT, call(100.5, None)), "1 calls hung"),
        (more(RIGHT, call(100.0, 103.9, deadline=1.0)), "a call ended 2.900 s after"),
        (more(RIGHT, CANCELLED), "another code than UNAVAILABLE: CANCELLED, ''"),
        (more(RIGHT, call(103.2, 103.3, CODE.UNAVAILABLE)), "1 of 3 calls after the first answer"),
        (NEVER, "no call was made after the first answer"),
        (FAILING, "the channel is TRANSIENT_FAILURE"),
        (FLOODING, "100 attempts within 2.95 s"),
        (TOO_SOON, "two attempts started 0.060 s apart"),
        (replace(RIGHT, events=(*RIGHT.events, *AGAIN[1:])), "3 connections were made"),
        (replace(RIGHT, events=()), "0 connections were made"),
    ],
    checks.check_none_failed: [(RIGHT, "1 of 6 calls failed")],
    checks.check_none_lost: [
        (more(RIGHT, call(100.9, 101.1, CODE.UNAVAILABLE)), "1 of 7 calls were lost"),
        (replace(RIGHT, calls=(WAITED, *AFTER)), "no running call was answered"),
    ],
    checks.check_waited: [
        (more(RIGHT, NOT_WAITED), "1 of 2 waiting calls failed"),
        (more(RIGHT, NOT_SENT), "1 wait-for-ready calls failed for lack of a connection"),
        (STEADY, "no wait-for-ready call was made"),
        (more(STEADY, ANSWERED), "no wait-for-ready call was made"),
    ],
    checks.check_recovered: [
        (NEVER, "no call was answered after"),
        (more(NEVER, call(104.9, 105.0)), "the first answer came 2.400 s after"),
    ],
    noticed: [
        (KEPT, "was not abandoned"),
        (replace(RIGHT, events=(*FIRST, lost(104.0))), "abandoned after 2.900 s"),
    ],
    checks.check_stayed: [
        (RIGHT, "1 connections were lost"),
        (replace(KEPT, calls=BEFORE), "the proxy answered no call"),
    ],
}


@pytest.mark.parametrize(
    ("check", "seen", "complaint"), [(check, *case) for check, cases in WRONG.items() for case in cases]
)
def test_what_is_wrong_fails(check, seen, complaint):
    """CH-2, CH-3, CH-6, CH-7, CH-8, CB-4, CB-5, CB-7: each violation is found, and the message says what was seen."""
    with pytest.raises(AssertionError, match=complaint):
        check(seen)


def test_a_call_that_began_before_the_loss_was_heard_of_has_waited():
    """CH-7: a wait-for-ready call that lasts until the server is back has waited, even if the loss came later."""
    checks.check_waited(more(STEADY, call(101.05, 102.92, wait_for_ready=True)))


@pytest.mark.parametrize(
    ("excuse", "excused", "other"),
    [
        (checks.dropped, CANCELLED, replace(CANCELLED, code=CODE.DATA_LOSS)),
        (checks.dropped, RESET, replace(RESET, code=CODE.DATA_LOSS)),
        (checks.ended_by_deadline, call(101.2, 102.2, CODE.DEADLINE_EXCEEDED, deadline=1.0), RESET),
        (checks.ended_by_deadline, CANCELLED, replace(CANCELLED, ended=102.0)),
        (checks.reset_by_proxy, RESET, replace(RESET, details="another")),
        (checks.reset_by_proxy, RESET, CANCELLED),
    ],
)
def test_excuses(excuse, excused, other):
    """CH-7: another code than UNAVAILABLE is excused only in the case that its excuse describes."""
    checks.check_always(more(RIGHT, excused), excused=excuse)
    with pytest.raises(AssertionError, match="another code than UNAVAILABLE"):
        checks.check_always(more(RIGHT, other), excused=excuse)
