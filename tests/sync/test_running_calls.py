"""How calls enter and leave a connection while another thread retires it, at every point where threads may switch."""

from __future__ import annotations

import itertools
import sys

import pytest

from grpc_backoff.sync import core_connector
from grpc_backoff.sync.core_connector import RunningCalls


def interrupted(work, at, other):
    """Do `work`, and `other` before its `at`-th instruction in the module; return both results.

    The second result is a list, which is empty if `work` has fewer instructions.
    """
    count, results = 0, []

    def trace(frame, event, _argument):
        nonlocal count
        if frame.f_code.co_filename != core_connector.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == at:
                sys.settrace(None)
                results.append(other())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return work(), results
    finally:
        sys.settrace(before)


def at_every_point(work, other, *, running=("a",)):
    """Yield the results of `work` and `other` on the same calls, for each instruction of `work`; see `interrupted`."""
    for at in itertools.count(1):
        calls = RunningCalls()
        for token in running:
            calls.enter(token)
        result, results = interrupted(lambda: work(calls), at, lambda: other(calls))  # noqa: B023 - called at once
        if not results:
            assert at > 5
            return
        yield result, results[0]


def enter(calls):
    return calls.enter("b")


def leave(calls):
    return calls.leave("a")


def retire(calls):
    return calls.retire()


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_call_that_enters_as_the_connection_is_retired(interrupts):
    """CB-16: the call does not stay, or whoever retires the connection sees it."""
    pairs = at_every_point(retire, enter) if interrupts else at_every_point(enter, retire)
    for results in pairs:
        stays, running = results[::-1] if interrupts else results
        assert not stays or running == 2


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_call_that_leaves_as_the_connection_is_retired(interrupts):
    """CH-6: the call learns that it was the last, or whoever retires the connection sees that none is left."""
    pairs = at_every_point(retire, leave) if interrupts else at_every_point(leave, retire)
    for results in pairs:
        was_last, running = results[::-1] if interrupts else results
        assert was_last or running == 0


def test_two_calls_that_leave_a_retired_connection_together():
    """CH-6: at least one of them learns that none is left."""

    def leave_retired(calls):
        calls.retired = True
        return calls.leave("a")

    for results in at_every_point(leave_retired, lambda calls: calls.leave("b"), running=("a", "b")):
        assert any(results)


def test_leaving_twice():
    """CH-6: a call may be reported as ended more than once."""
    calls = RunningCalls()
    calls.enter("a")
    calls.enter("b")
    assert len(calls) == 2
    assert not calls.leave("a")
    assert not calls.leave("a")
    assert calls.retire() == 1
    assert not calls.enter("c")
    assert not calls.leave("c")
    assert calls.leave("b")
