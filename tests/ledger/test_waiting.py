"""`wait`: the outcome of an operation, and its response if that is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest

from grpc_backoff import OptionError
from grpc_backoff.ledger import Ledger, LedgerStateError, OperationState, sync
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.transactions import claiming, recording
from tests.echo import Message
from tests.ledger.conftest import SETTINGS, dump
from tests.ledger.delivery.test_delivery import FAST, at_work
from tests.ledger.steps import QUICK, SHOP

S = grpc.StatusCode
PATH = "/shop.Orders/Place"


async def test_the_outcome(url, shop):
    """LG-19: `wait` returns a response that is kept, also in another process, and none that is too large."""
    async with at_work(url, shop) as (ledger, unary), await Ledger.open(url, settings=FAST) as other:
        kept, plain, large = [
            (await ledger.submit(unary, Message(text=f"secret-{size}"), keep_response=size)).id
            for size in (1000, None, 2)
        ]
        here, there = await asyncio.gather(ledger.wait(kept, 20), other.wait(kept, 20))
        rest = [await other.wait(each, 20) for each in (plain, large)]

    assert here == there
    assert (here.state, here.attempts, here.code) == (OperationState.SUCCEEDED, 1, "OK")
    assert Message.FromString(here.response).text == "secret-1000"
    assert [each.response for each in rest] == [None, None]
    assert "secret" not in repr(here)
    assert "secret" not in repr(AttemptReport(kept, 1, QUICK, response=b"secret"))


async def test_a_notification_wakes(postgres_url, shop):
    """LG-19: on PostgreSQL, the end of an operation wakes those that wait for its response in other processes."""
    shop.script["a"] = [2.0]
    async with (
        at_work(postgres_url, shop) as (ledger, unary),
        await Ledger.open(postgres_url, settings=replace(FAST, poll=300.0)) as other,
    ):
        other.store.waiting = 300.0
        told = await ledger.submit(unary, Message(text="a"), keep_response=100)
        assert (await other.wait(told.id, 30)).attempts == 1


async def test_what_the_call_raised(url, shop):
    """LG-19: `wait` raises the code and details of the last attempt, if the operation failed or is in conflict."""
    shop.script |= {"bad": [(S.INVALID_ARGUMENT, "no such order")], "twice": [S.ABORTED]}
    async with at_work(url, shop) as (ledger, unary):
        raised = []
        for text in ("bad", "twice"):
            told = await ledger.submit(unary, Message(text=text), keep_response=100)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ledger.wait(told.id, 20)
            raised.append((caught.value.code(), caught.value.details()))

    assert raised == [(S.INVALID_ARGUMENT, "no such order"), (S.ABORTED, "as scripted")]


async def test_without_an_outcome(ledger):
    """LG-19: `wait` ends after its timeout, and for an operation that expired, was discarded, or does not exist."""
    waits, gone, late = [(await ledger.submit(SHOP, PATH, b"x", not_after=end)).id for end in (None, None, 1.0)]
    await ledger.discard(gone)
    await claiming.expire(ledger.store, SHOP, 10)

    for limit in (0, 0.05):
        with pytest.raises(TimeoutError):
            await ledger.wait(waits, limit)
    for limit in (0, None):
        with pytest.raises(LedgerStateError, match="is discarded"):
            await ledger.wait(gone, limit)
    with pytest.raises(LedgerStateError, match="is expired"):
        await ledger.wait(late)
    with pytest.raises(LedgerStateError, match="no operation"):
        await ledger.wait("00000000-0000-4000-8000-000000000000")
    with pytest.raises(OptionError, match="timeout=-1"):
        await ledger.wait(waits, -1)
    assert ledger._waking._waiters == {}


@pytest.mark.parametrize("limit", [0, -1, 101, 1.5, True, "1"])
async def test_a_limit_that_is_none(ledger, limit):
    """LG-19: `keep_response` is a number of bytes, at most `max_request_bytes`."""
    with pytest.raises(OptionError, match="keep_response="):
        await ledger.submit(SHOP, PATH, b"x", keep_response=limit)


async def test_a_response_is_pruned(url):
    """LG-11, LG-19: a response is deleted with its operation."""
    async with await Ledger.open(url, settings=replace(SETTINGS, poll=0.1)) as ledger:
        await ledger.submit(SHOP, PATH, b"x", keep_response=100)
        [operation] = await claiming.claim(ledger.store, SHOP, 1, "me", 30.0)
        report = AttemptReport(operation.id, operation.lease_token, QUICK, response=b"kept")
        await recording.record_ends(ledger.store, [report])
        assert (await ledger.wait(operation.id)).response == b"kept"
        assert await ledger.prune(0) == 1
        assert operation.id not in dump(url)


async def test_threads(url, shop):
    """LG-19: the threaded ledger waits too."""
    async with at_work(url, shop) as (ledger, unary):
        told = await ledger.submit(unary, Message(text="a"), keep_response=100)

        def wait():
            with sync.Ledger.open(url, settings=FAST) as other:
                return other.wait(told.id, timeout=20)

        outcome = await asyncio.to_thread(wait)

    assert Message.FromString(outcome.response).text == "a"
