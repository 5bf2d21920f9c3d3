"""CH-3, CH-4: pending calls, their notifications, and their error."""

from __future__ import annotations

import grpc

from grpc_backoff.calls.machine import CancelRequested, ConnectionReady, Missed, NoConnection
from grpc_backoff.connection.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.sync.pending import PendingCalls


class Manager:
    takes_calls = True

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
            made=0,
        )


class Call:
    def __init__(self):
        self.told = []
        self.feed = self.told.append


def pending(manager):
    work = []
    made = PendingCalls("target:1", work.append)
    made.manager = manager
    made.work = work
    return made


def run(waiting):
    for each in waiting.work:
        each()
    waiting.work.clear()


def test_who_comes_asks():
    """CH-3: a new pending call asks for a connection, on the conductor's thread, and waits for it."""
    manager, call = Manager(), Call()
    waiting = pending(manager)
    waiting.add(call)
    assert (len(waiting), manager.wanted) == (1, 0)
    run(waiting)
    assert (manager.wanted, call.told) == (1, [])


def test_calls_that_ask_together_are_answered_together():
    """CH-3: calls made before the conductor runs share one request for a connection, and each is notified once."""
    manager, calls = Manager(becomes=State.READY), [Call() for _ in range(3)]
    waiting = pending(manager)
    for call in calls:
        waiting.add(call)
    run(waiting)
    assert (manager.wanted, [call.told for call in calls]) == (1, [[ConnectionReady()]] * 3)


def test_an_answered_call_asks_again():
    """CH-3: a call that could not use its connection may ask for another while other calls are being notified."""
    call, manager = Call(), Manager(becomes=State.READY)
    waiting = pending(manager)
    call.feed = lambda given: (call.told.append(given), waiting.add(call) if len(call.told) < 3 else None)
    waiting.add(call)
    for work in waiting.work:  # the list grows when the call asks again
        work()
    assert (manager.wanted, call.told) == (3, [ConnectionReady()] * 3)


def test_who_comes_too_late_to_hear():
    """CH-3: if the connection is READY when a call asks for it, the call is notified at once."""
    call = Call()
    waiting = pending(Manager(becomes=State.READY))
    waiting.add(call)
    run(waiting)
    assert call.told == [ConnectionReady()]


def test_a_key_in_backoff():
    """SH-3: a call that asks while the key is in backoff gets the same failure at once."""
    call = Call()
    failure = Failure(Stage.TCP, "refused")
    waiting = pending(Manager(becomes=State.TRANSIENT_FAILURE, failure=failure))
    waiting.add(call)
    run(waiting)
    assert call.told == [NoConnection(resolved=True)]


def test_who_has_left_is_told_nothing():
    """CH-3: a call that has ended receives no further notifications."""
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
    """CH-3: pending calls are notified of a connection, of a lost one, of a failed attempt and of the channel's end."""
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
    """CH-3: the service config applies only after the target's name has been resolved."""
    manager = Manager(State.TRANSIENT_FAILURE, failure=Failure(Stage.RESOLVE, "no such host"))
    waiting = pending(manager)
    waiting.fail()
    assert waiting.not_connected().resolved is False
    manager.failure = Failure(Stage.TCP, "refused")
    waiting.fail()
    assert waiting.not_connected().resolved is True


def test_the_error():
    """CH-4: the error's text names the target, the stage and the reason; its `status` has the figures."""
    manager = Manager(State.TRANSIENT_FAILURE, failure=Failure(Stage.TCP, "refused"))
    error = pending(manager).error(grpc.StatusCode.UNAVAILABLE)
    assert error.details() == "no connection to target:1; last error: tcp: refused"
    assert error.status == manager.status()
    late = pending(manager).error(grpc.StatusCode.DEADLINE_EXCEEDED)
    assert late.details().startswith("Deadline Exceeded while waiting: no connection to target")


def test_an_exception_of_one_call():
    """TH-5: an exception in the step of one pending call does not keep the others waiting."""

    def broken(_given):
        raise ValueError("mine")

    calls = [Call(), Call(), Call()]
    calls[0].feed = broken
    waiting = pending(Manager(becomes=State.READY))
    for notify in (lambda: run(waiting), waiting.release, waiting.fail, waiting.cancel):
        for call in calls:
            waiting.add(call)
        notify()
    told = [ConnectionReady(), ConnectionReady(), NoConnection(), CancelRequested()]
    assert [call.told for call in calls] == [[], told, told]
