"""What a retried call must not do: repeat what was executed, hide what it knows, or stop a loop."""

from __future__ import annotations

import asyncio
import sys

import grpc
import pytest

from grpc_backoff import RetryBudget, RetryHooks, aio
from grpc_backoff.calls.budget import tokens_of
from tests.aio.retry_service import CODE, OK, Say, answered, failing, peer
from tests.aio.service import fails
from tests.aio.trying import ANSWERS, CALLS, finish, make, trying
from tests.echo import Echo, EchoStub, Message, serving

__all__ = ["peer"]

QUICK = "retry: 3, delay: 1ms"


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_message_that_is_too_large(side):
    """RT-2: it is RESOURCE_EXHAUSTED, and no smaller the next time; the server may have executed the call."""
    service, limit = Echo(), [("grpc.max_receive_message_length", 100)]
    async with serving(service, options=limit if side == "server" else ()) as port:
        options = limit if side == "client" else ()
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=options, retry=QUICK) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await EchoStub(channel).Unary(Message(text="a" * 1000))
    assert type(caught.value) is grpc.aio.AioRpcError
    assert caught.value.code() is CODE.RESOURCE_EXHAUSTED
    assert service.executed.total() == (1 if side == "client" else 0)


async def test_why_there_was_no_connection(peer):
    """CH-4, RT-6: behind the error of a call that was given up stands the one that knows the channel's status."""
    async with aio.insecure_channel("127.0.0.1:1", retry=QUICK) as channel:
        with pytest.raises(aio.RetriesExhaustedError) as caught:
            await EchoStub(channel).Unary(Message())
    assert isinstance(caught.value.__cause__, aio.NoConnectionError)
    assert caught.value.__cause__.status.last_error is not None


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ([("Authorization", "secret")], "'Authorization'"),
        ([("a b", "secret")], "'a b'"),
        ([(b"authorization", "secret")], "b'authorization'"),
        ([("authorization", b"secret")], "bytes for authorization"),
        ([("token-bin", "secret")], "str for token-bin"),
    ],
)
async def test_a_hook_with_bad_metadata(peer, caplog, pairs, named):
    """RT-4: what grpc would not take is logged without its value, and the call ends with its own error."""
    client = peer.client(QUICK, retry_hooks=RetryHooks(refresh_credentials=lambda _: pairs))
    peer.service.scripts["a"] = [Say(CODE.UNAUTHENTICATED)]
    call = client.call()
    error = await failing(call)
    assert (error.code(), type(error)) == (CODE.UNAUTHENTICATED, grpc.aio.AioRpcError)
    assert await call.code() is CODE.UNAUTHENTICATED
    assert named in caplog.text
    assert "secret" not in caplog.text


async def test_calls_that_are_never_retried_cost_nothing(peer):
    """RT-9: a call that could not be retried anyway takes no token from those that can."""
    budget = RetryBudget(10, 0.1)
    client = peer.client("retry: 0", retry_budget=budget)
    peer.service.scripts["a"] = [Say()] * 3 + [OK]
    for _ in range(3):
        await failing(client.call())
    assert tokens_of(peer.target, budget).left == 10
    assert await answered(client.call()) == "a"


async def test_an_error_is_as_long_as_it_was(peer):
    """RT-6: who awaits a failed call again gets the same error, which does not grow."""
    client = peer.client(QUICK)
    peer.service.scripts["a"] = [Say()] * 4
    call = client.call()
    lengths = []
    for _ in range(3):
        traceback, length = (await failing(call)).__traceback__, 0
        while traceback is not None:
            traceback, length = traceback.tb_next, length + 1
        lengths.append(length)
    assert len(set(lengths)) == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start eagerly from Python 3.12 on")
@CALLS
async def test_eager_tasks(method, style):
    """RT-8: tries that begin in tasks that start at once."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with asyncio.timeout(20), trying(fails(), fails(1)) as service:
        assert await finish(make(service.stub, method, style=style)) == ANSWERS[method]
