"""`LedgerHooks` and `call_hook`; `test_delivery.py` tests how deliveries use them."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff import OptionError
from grpc_backoff.ledger.operation_events import LedgerHooks, call_hook


@pytest.mark.parametrize("name", ["on_success", "on_exhausted", "on_conflict", "refresh_credentials"])
def test_what_cannot_be_called_is_refused(name):
    """LG-7: `LedgerHooks` refuses a hook that is not callable, and the error names the hook."""
    with pytest.raises(OptionError, match=rf"LedgerHooks\.{name}=7: expected a function"):
        LedgerHooks(**{name: 7})


async def test_functions_and_coroutine_functions():
    """LG-7: a hook may be a function or a coroutine function, which is awaited."""

    async def slow(number):
        return number

    assert await call_hook(slow, 1) == await call_hook(lambda number: number, 1) == 1


async def test_whose_cancellation_it_is():
    """LG-7: a CancelledError raised by a hook becomes a RuntimeError, unless the calling task was cancelled."""

    def broken():
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="the hook raised CancelledError"):
        await call_hook(broken)

    caller = asyncio.ensure_future(call_hook(asyncio.sleep, 60))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
