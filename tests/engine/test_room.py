"""PO-14: how many more calls a connection may carry."""

from __future__ import annotations

import math
import threading

import pytest

from grpc_backoff.engine.room import Room


class Now:
    def __init__(self):
        self.now, self.left = 0.0, 0

    def __call__(self):
        return self.now

    def count(self):
        self.left += 1


@pytest.fixture
def now():
    return Now()


def test_no_more_than_there_is_room_for(now):
    """PO-14: a call enters only if there is room; one that does not enter leaves nothing behind."""
    room = Room(2, now, now.count)
    assert [room.enter(call) for call in "abc"] == [True, True, False]
    room.leave("c")
    assert (room.taken(), room.next_free(), now.left) == (2, math.inf, 0)


def test_an_ended_call_is_counted_for_a_while(now):
    """PO-14: what has ended is counted for a part of its time; then there is room again. Ending twice counts once."""
    room = Room(2, now, now.count)
    room.enter("slow")
    now.now = 0.1
    room.enter("fast")
    for call in ("slow", "slow", "fast"):
        room.leave(call)
    assert (room.taken(), room.enter("c"), now.left) == (2, False, 2)
    assert room.next_free() == pytest.approx(0.12)
    now.now = 0.1201
    assert (room.taken(), room.enter("c"), room.enter("d")) == (1, True, False)
    now.now = 0.126
    assert (room.taken(), room.next_free(), room.enter("d")) == (1, math.inf, True)


def test_threads(now):
    """PO-14: threads that enter at the same time never take more places than there are."""
    room, entered = Room(10, now, now.count), list[int]()

    def enter(first):
        entered.extend(each for each in range(first, first + 500) if room.enter(each))

    threads = [threading.Thread(target=enter, args=(500 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < len(entered) <= 10
    assert room.taken() == len(entered)
