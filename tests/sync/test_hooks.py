"""RT-4 to RT-6: user-supplied hooks, which run in the thread of the call."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar, copy_context

import grpc
import pytest

from grpc_backoff import FailedCall, OptionError, RetryHooks
from grpc_backoff.calls.machine import Hook
from grpc_backoff.sync.hooks import Hooks

FAILED = FailedCall(
    target="t",
    method="/m",
    attempt=1,
    code=grpc.StatusCode.UNAUTHENTICATED,
    details="",
    trailing_metadata=(),
    took=0.1,
)


def hooks(**given):
    return Hooks(RetryHooks(**given), "t", time.monotonic)


def ask(asked, hook=Hook.REFRESH, began=0.0):
    return asked.ask(hook, FAILED, began, copy_context())


def test_each_is_called():
    """RT-5, RT-6: the hooks for conflicts and exhaustion receive the failed call; their return values are ignored."""
    seen = []
    made = hooks(on_conflict=seen.append, on_exhausted=seen.append)
    assert ask(made, Hook.CONFLICT) is None
    assert ask(made, Hook.EXHAUSTED) is None
    assert seen == [FAILED, FAILED]
    assert ask(hooks(), Hook.CONFLICT) is None


def test_in_the_context_of_the_call():
    """RT-4: a hook sees the context variables of the call for which it runs."""
    variable = ContextVar("variable", default=None)
    variable.set("mine")
    seen = []
    ask(hooks(on_conflict=lambda _: seen.append(variable.get())), Hook.CONFLICT)
    assert seen == ["mine"]


def test_one_that_raises(caplog):
    """RT-6: an exception from a hook is logged, and the credentials are then not refreshed."""
    assert ask(hooks(refresh_credentials=lambda _: 1 / 0)) is None
    assert "ZeroDivisionError" in caplog.text


def test_metadata_that_are_none(caplog):
    """RT-4: invalid metadata from a hook is logged as an error that does not show its value."""
    assert ask(hooks(refresh_credentials=lambda _: [("Upper", "secret")])) is None
    assert "secret" not in caplog.text


def test_one_renewal_for_many():
    """RT-4: calls that fail during a refresh share it, but a call whose attempt began later causes another refresh."""
    runs, go = [], threading.Event()

    def refresh(_failed):
        runs.append(None)
        go.wait(20)
        return [("authorization", str(len(runs)))]

    made, got = hooks(refresh_credentials=refresh), []
    began = time.monotonic()
    threads = [threading.Thread(target=lambda: got.append(ask(made, began=began))) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    go.set()
    for thread in threads:
        thread.join(20)
    assert (len(runs), set(got)) == (1, {(("authorization", "1"),)})
    assert ask(made, began=time.monotonic()) == (("authorization", "2"),)


def test_not_for_the_hooks_own_calls():
    """RT-4: calls that the hook itself makes do not refresh credentials."""
    seen = []
    made = hooks(refresh_credentials=lambda _: seen.append(made.can_refresh()))
    assert made.can_refresh()
    ask(made)
    assert seen == [False]
    assert made.can_refresh()
    assert not hooks().can_refresh()


def test_no_coroutine_functions():
    """CH-10: a coroutine function is refused as a hook for a threaded channel."""

    async def refresh(_failed):
        return None

    with pytest.raises(OptionError, match=r"RetryHooks\.refresh_credentials"):
        hooks(refresh_credentials=refresh)
