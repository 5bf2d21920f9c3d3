"""Waits that end, and conditions that no signal handler leaves locked."""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue

import pytest

from grpc_backoff.base.threads import Condition, guard, take


def interrupted(work, at):
    """Raise KeyboardInterrupt at the `at`-th point of `work` at which Python may run a signal handler, if there is one.

    Return whether there is one. Such points are where a function begins, and in a function of Python's own, after each
    of its instructions, which is more than Python does.
    """
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        frame.f_trace_opcodes = True
        if event in ("call", "opcode") and frame.f_code.co_filename == threading.__file__:
            count += 1
            if count == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def held(condition):
    with condition:
        condition.notify_all()


def is_free(condition):
    """Return whether another thread could acquire the lock."""
    found = []

    def look():
        found.append(condition.acquire(blocking=False))
        if found[0]:
            condition.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def stays_free(make):
    """Return whether the lock of a condition is free, wherever its `with` was interrupted."""
    at = 1
    while interrupted(lambda: held(condition), at) if (condition := make()) else False:
        if not is_free(condition):
            return False
        at += 1
    return at > 1


def test_always_free():
    """TH-6: the lock is free after a `with` that a signal handler has interrupted, wherever that was."""
    assert not stays_free(threading.Condition)  # what this is for
    assert stays_free(Condition)


def test_guarded():
    """TH-6: a condition that other code has made is made safe while it is in use."""
    condition = threading.Condition()
    with condition:
        guard(condition)
    assert type(condition) is Condition
    with condition:
        assert not condition.wait(0.001)
    assert is_free(condition)


def test_left_alone():
    """TH-6: a subclass may have methods of its own, which stay."""

    class Own(threading.Condition):
        pass

    condition = Own()
    guard(condition)
    assert type(condition) is Own


def test_taking_from_a_queue():
    """TH-5: `take` respects its timeout even after thousands of items, which `SimpleQueue.get` alone does not."""

    def look():
        for _ in range(10_000):
            queue.put(1)
            assert queue.get() == 1
            with pytest.raises(Empty):
                take(queue, 1e-6)
        done.set()

    queue, done = SimpleQueue(), threading.Event()
    threading.Thread(target=look, daemon=True).start()
    assert done.wait(60)
    queue.put(2)
    assert take(queue, None) == 2
