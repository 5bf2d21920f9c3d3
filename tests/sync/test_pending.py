"""CH-3: threaded pending calls, which ask for a connection on the conductor's thread, and their notifications."""

from __future__ import annotations

from grpc_backoff.decide.calls.call_machine import CancelRequested, ConnectionReady, NoConnection
from grpc_backoff.decide.connections.events import Failure, Stage, State
from grpc_backoff.sync.pending import PendingCalls
from tests.engine.test_pending import Call, Manager


def pending(manager):
    work = []
    made = PendingCalls("target:1", work.append)
    made.pool = manager
    made.work = work
    return made


def run(waiting):
    for each in waiting.work:
        each()
    waiting.work.clear()


def test_who_comes_asks():
    """CH-3: a new pending call asks for a connection, on the conductor's thread, and waits for it."""
    manager, call = Manager(State.CONNECTING), Call()
    waiting = pending(manager)
    waiting.add(call)
    assert (len(waiting), manager.wanted) == (1, 0)
    run(waiting)
    assert (manager.wanted, call.told) == (1, [])


def test_calls_that_ask_together_are_answered_together():
    """CH-3: calls made before the conductor runs share one request for a connection, and each is notified once."""
    manager, calls = Manager(State.CONNECTING, becomes=State.READY), [Call() for _ in range(3)]
    waiting = pending(manager)
    for call in calls:
        waiting.add(call)
    run(waiting)
    assert (manager.wanted, [call.told for call in calls]) == (1, [[ConnectionReady()]] * 3)


def test_who_comes_while_a_connection_is_made():
    """CH-3: a call made just after another has asked does not wake the conductor; later ones renew the request."""
    manager = Manager(State.IDLE, becomes=State.CONNECTING)
    waiting, calls = pending(manager), [Call() for _ in range(3)]
    waiting.add(calls[0])
    run(waiting)
    waiting.add(calls[1])
    assert waiting.work == []
    manager.time = 0.02
    waiting.add(calls[2])
    assert len(waiting.work) == 1
    run(waiting)
    waiting.release()
    assert (manager.wanted, [call.told for call in calls]) == (2, [[ConnectionReady()]] * 3)


def test_who_comes_as_an_attempt_ends():
    """SH-3: a call that finds no attempt in progress asks, however short a time ago another has asked."""
    manager, calls = Manager(State.IDLE, becomes=State.CONNECTING), [Call(), Call()]
    waiting = pending(manager)
    waiting.add(calls[0])
    run(waiting)
    manager.becomes = manager.state = State.TRANSIENT_FAILURE
    waiting.add(calls[1])
    run(waiting)
    assert [call.told for call in calls] == [[], [NoConnection(resolved=False)]]


def test_an_answered_call_asks_again():
    """CH-3: a call that could not use its connection may ask for another while other calls are being notified."""
    call, manager = Call(), Manager(State.CONNECTING, becomes=State.READY)
    waiting = pending(manager)
    call.feed = lambda given: (call.told.append(given), waiting.add(call) if len(call.told) < 3 else None)
    waiting.add(call)
    for work in waiting.work:  # the list grows when the call asks again
        work()
    assert (manager.wanted, call.told) == (3, [ConnectionReady()] * 3)


def test_who_comes_too_late_to_hear():
    """CH-3: if the connection is READY when a call asks for it, the call is notified at once."""
    call = Call()
    waiting = pending(Manager(State.CONNECTING, becomes=State.READY))
    waiting.add(call)
    run(waiting)
    assert call.told == [ConnectionReady()]


def test_a_key_in_backoff():
    """SH-3: a call that asks while the key is in backoff gets the same failure at once."""
    call = Call()
    failure = Failure(Stage.TCP, "refused")
    waiting = pending(Manager(State.CONNECTING, becomes=State.TRANSIENT_FAILURE, failure=failure))
    waiting.add(call)
    run(waiting)
    assert call.told == [NoConnection(resolved=True)]


def test_all_are_told():
    """CH-3: pending calls are notified of a connection, of a failed attempt and of the channel's end."""
    manager, calls = Manager(State.READY), [Call(), Call()]
    waiting = pending(manager)
    for call in calls:
        waiting.add(call)
    waiting.release()
    waiting.fail()
    waiting.cancel()
    told = [ConnectionReady(), NoConnection(resolved=True), CancelRequested()]
    assert [call.told for call in calls] == [told, told]


def test_some_are_told():
    """PO-14: where there is room for some calls, those that came first are told, each once until it has asked again."""
    manager, calls = Manager(State.READY), [Call() for _ in range(4)]
    waiting = pending(manager)
    for call in calls:
        waiting.add(call)
    told = lambda: [len(call.told) for call in calls]  # noqa: E731
    waiting.release(1)
    waiting.release(2)
    assert told() == [1, 1, 0, 0], "the thread of the first has not taken its place yet"
    waiting.discard(calls[0])
    waiting.release(2)
    assert told() == [1, 1, 1, 0]
    waiting.add(calls[1])
    waiting.release(2)
    assert told() == [1, 2, 1, 0]


def test_calls_ask_for_room_together():
    """PO-14: calls that found every connection full ask once, for all of them."""
    manager = Manager(State.READY)
    manager.waits_for_room, manager.filled = True, 0

    def fill():
        manager.filled += 1

    manager.fill = fill
    waiting = pending(manager)
    for _ in range(3):
        waiting.add(Call())
    run(waiting)
    assert (manager.filled, len(waiting)) == (1, 3)
