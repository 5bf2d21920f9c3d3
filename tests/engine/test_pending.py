"""CH-3, CH-4: what both APIs' queues of pending calls do; each API's `test_pending.py` has the rest."""

from __future__ import annotations

import grpc
import pytest

from grpc_backoff.aio.pending import PendingCalls as AsyncioCalls
from grpc_backoff.decide.calls.call_machine import CancelRequested, ConnectionReady, NoConnection
from grpc_backoff.decide.connections.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.sync.pending import PendingCalls as ThreadedCalls

REFUSED, UNKNOWN = Failure(Stage.TCP, "refused"), Failure(Stage.RESOLVE, "no such host")


class Manager:
    """Stands in for a manager whose attempts have failed; `state` and `failure` are up to the test."""

    takes_calls = True
    is_paid = False
    made = 1
    waits_for_room = waits_for_answer = False
    time = 0.0

    def __init__(self, state=State.TRANSIENT_FAILURE, becomes=None, failure=None):
        self.state = state
        self.becomes = becomes
        self.failure = failure
        self.wanted = 0

    @property
    def pool(self):
        """The manager itself: on asyncio, a queue asks a channel's share for its pool."""
        return self

    def want(self):
        """Change the state if the test says so; return it."""
        self.wanted += 1
        self.state = self.becomes or self.state
        return self.state

    @property
    def is_failing(self):
        return self.state is State.TRANSIENT_FAILURE

    def now(self):
        return self.time

    def status(self):
        return ConnectionStatus(
            state=self.state,
            attempt=1,
            in_flight=False,
            last_error=self.failure,
            next_attempt_in=None,
            ready_since=None,
            made=0,
        )


class Call:
    """A call that leaves the queue when it has a connection, and whose step raises if it is broken."""

    def __init__(self, waiting=None, *, broken=False):
        self.told = []
        self._waiting = waiting
        self._broken = broken

    def feed(self, given):
        if self._broken:
            raise ValueError("mine")
        self.told.append(given)
        if self._waiting is not None and given == ConnectionReady():
            self._waiting.discard(self)


@pytest.fixture(params=[AsyncioCalls, ThreadedCalls], ids=["asyncio", "threads"])
def waiting(request):
    """An empty queue, whose manager is up to the test."""
    made = request.param("target:1", lambda work: None)
    made.pool = Manager()
    return made


def test_an_exception_of_one_call(waiting, caplog):
    """CH-3, TH-5: an exception in the step of one pending call is logged and does not keep the others waiting."""
    waiting.pool.state = State.READY
    calls = [Call(waiting), Call(waiting, broken=True), Call(waiting)]
    for notify in (waiting.release, waiting.fail, waiting.cancel):
        for call in calls:
            waiting.add(call)
        notify()
    told = [ConnectionReady(), NoConnection(resolved=True), CancelRequested()]
    assert [call.told for call in calls] == [told, [], told]
    assert caplog.text.count("a step of a pending call raised") == 3


def test_who_comes_after_the_end(waiting):
    """CB-10: a call that is added just after the channel has cancelled its pending calls is cancelled, too."""
    early, late = Call(), Call()
    waiting.add(early)
    waiting.cancel()
    waiting.add(late)
    assert (early.told, late.told) == ([CancelRequested()], [CancelRequested()])


def test_who_has_left_is_told_nothing(waiting):
    """CH-3: a call that has ended receives no further notifications."""
    call = Call()
    waiting.add(call)
    assert len(waiting) == 1
    waiting.discard(call)
    waiting.discard(call)
    for notify in (waiting.release, waiting.fail, waiting.cancel):
        notify()
    assert (len(waiting), call.told) == (0, [])


def test_a_name_that_is_resolved(waiting):
    """CH-3: the service config applies once the target's name has been resolved, even if it no longer resolves."""
    call, told = Call(), []
    waiting.add(call)
    for failure in (UNKNOWN, REFUSED, UNKNOWN):
        waiting.pool.failure = failure
        waiting.fail()
        told.append(waiting.not_connected().resolved)
    assert told == [False, True, True]
    assert call.told == [NoConnection(resolved=resolved) for resolved in told]


def test_the_error(waiting):
    """CH-4: the error's text names the target, the stage and the reason; its `status` has the figures."""
    waiting.pool.failure = REFUSED
    error = waiting.error(grpc.StatusCode.UNAVAILABLE)
    assert error.details() == "no connection to target:1; last error: tcp: refused"
    assert error.status == waiting.pool.status()
    late = waiting.error(grpc.StatusCode.DEADLINE_EXCEEDED)
    assert late.details().startswith("Deadline Exceeded while waiting: no connection to target")
