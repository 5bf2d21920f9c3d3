"""CH-3, CH-4: calls that wait, what they are told, and their error."""

from __future__ import annotations

import grpc

from grpc_backoff.calls.machine import CancelRequested, ConnectionReady, Missed, NoConnection
from grpc_backoff.connection.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.sync.pending import PendingCalls


class Manager:
    def __init__(self, state=State.CONNECTING, becomes=None, failure=None):
        self.state = state
        self.becomes = becomes
        self.failure = failure
        self.wanted = 0

    def want(self):
        self.wanted += 1
        self.state = self.becomes or self.state

    def status(self):
        return ConnectionStatus(
            state=self.state,
            attempt=1,
            in_flight=False,
            last_error=self.failure,
            next_attempt_in=None,
            ready_since=None,
            connections=0,
        )


class Call:
    def __init__(self):
        self.told = []
        self.feed = self.told.append


def pending(manager):
    work = []
    made = PendingCalls("target", work.append)
    made.manager = manager
    made.work = work
    return made


def run(waiting):
    for each in waiting.work:
        each()
    waiting.work.clear()


def test_who_comes_asks():
    """CH-3: a call that comes asks for a connection, on the conductor, and waits."""
    manager, call = Manager(), Call()
    waiting = pending(manager)
    waiting.add(call)
    assert (len(waiting), manager.wanted) == (1, 0)
    run(waiting)
    assert (manager.wanted, call.told) == (1, [])


def test_who_comes_too_late_to_hear():
    """CH-3: a connection that came between the look and the wait is told to whoever asks."""
    call = Call()
    waiting = pending(Manager(becomes=State.READY))
    waiting.add(call)
    run(waiting)
    assert call.told == [ConnectionReady()]


def test_a_key_in_backoff():
    """SH-3: whoever asks while the key is in backoff has the same failure, at once."""
    call = Call()
    failure = Failure(Stage.TCP, "refused")
    waiting = pending(Manager(becomes=State.TRANSIENT_FAILURE, failure=failure))
    waiting.add(call)
    run(waiting)
    assert call.told == [NoConnection(resolved=True)]


def test_who_has_left_is_told_nothing():
    """CH-3: a call that has ended is told nothing more."""
    call = Call()
    waiting = pending(Manager(becomes=State.READY))
    waiting.add(call)
    waiting.discard(call)
    waiting.discard(call)
    run(waiting)
    waiting.release()
    waiting.fail()
    waiting.cancel()
    assert call.told == []


def test_all_are_told():
    """CH-3: of a connection, of a failure, of the close; and where the connection is gone already, of that."""
    manager, calls = Manager(State.READY), [Call(), Call()]
    waiting = pending(manager)
    for call in calls:
        waiting.add(call)
    waiting.release()
    manager.state = State.IDLE
    waiting.release()
    waiting.fail()
    waiting.cancel()
    told = [ConnectionReady(), Missed(), NoConnection(resolved=True), CancelRequested()]
    assert [call.told for call in calls] == [told, told]


def test_a_name_that_was_never_resolved():
    """CH-3: the service config holds from the first resolution on, which a failure to resolve is not."""
    manager = Manager(State.TRANSIENT_FAILURE, failure=Failure(Stage.RESOLVE, "no such host"))
    waiting = pending(manager)
    waiting.fail()
    assert waiting.not_connected().resolved is False
    manager.failure = Failure(Stage.TCP, "refused")
    waiting.fail()
    assert waiting.not_connected().resolved is True


def test_the_error():
    """CH-4: it says target, stage and reason, and has the figures in its status."""
    manager = Manager(State.TRANSIENT_FAILURE, failure=Failure(Stage.TCP, "refused"))
    error = pending(manager).error(grpc.StatusCode.UNAVAILABLE)
    assert error.details() == "no connection to target; last error: tcp: refused"
    assert error.status == manager.status()
    late = pending(manager).error(grpc.StatusCode.DEADLINE_EXCEEDED)
    assert late.details().startswith("Deadline Exceeded while waiting: no connection to target")
