"""A call's identifier, which is the same in its events, its log records and its hooks."""

from __future__ import annotations

import logging
import os
import random
import re
import subprocess
import sys

import pytest

from grpc_backoff import RetryHooks, aio
from grpc_backoff.telemetry.trace import CallId
from tests.aio.retry_service import CODE, Say, peer
from tests.aio.trying import REQUEST_STREAMS, failing, make, trying
from tests.both_apis.tries import fails
from tests.echo import EchoStub, Message

__all__ = ["peer"]

DOWN = Say()


async def exhausted(peer, caplog, text="a", **how):
    """Make a call that fails three times; return the hook's arguments, the events and the log records."""
    told = []
    client = peer.client("retry: 2, delay: 1ms", retry_hooks=RetryHooks(on_exhausted=told.append))
    peer.service.scripts[text] = [DOWN] * 3
    unary = aio.retrying(client.stub.Unary, "retry: 2, delay: 1ms", **how) if how else client.stub.Unary
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        await failing(unary(Message(text=text)))
    records = [record for record in caplog.records if getattr(record, "method", None)]
    return told, [event for event in client.events if hasattr(event, "method")], records


async def test_made_up_for_each_call(peer, caplog):
    """RT-11: each call with a policy has its own identifier, the same in events, log records and hooks."""
    (failed,), events, records = await exhausted(peer, caplog)
    assert len(events) == len(records) == 3, "two retries, and the end"
    assert {event.call_id for event in events} == {record.operation_id for record in records} == {failed.call_id}
    assert len(failed.call_id) == 32
    assert int(failed.call_id, 16)
    (other,), _, _ = await exhausted(peer, caplog, "b")
    assert other.call_id != failed.call_id


async def test_given_by_the_caller(peer, caplog):
    """RT-11: an identifier given by the caller, such as an order number, replaces the random one."""
    (failed,), events, records = await exhausted(peer, caplog, call_id="order 17")
    told = [failed.call_id, *(event.call_id for event in events), *(record.operation_id for record in records)]
    assert set(told) == {"order 17"}


async def test_the_request_is_kept_for_hooks(peer, caplog):
    """RT-6: a hook gets the request as serialized bytes, which the record's `repr` does not show."""
    (failed,), _, _ = await exhausted(peer, caplog)
    assert Message.FromString(failed.request).text == "a"
    assert repr(failed.request) not in repr(failed)
    assert failed.code is CODE.UNAVAILABLE


@REQUEST_STREAMS
async def test_a_stream_of_requests_is_not_kept(method):
    """RT-6, RT-8: a hook gets no request if the call is request-streaming."""

    told = []
    async with trying(fails(), fails()) as service:
        target, hooks = f"127.0.0.1:{service.port}", RetryHooks(on_exhausted=told.append)
        async with aio.insecure_channel(target, retry="retry: 1, delay: 1ms", retry_hooks=hooks) as channel:
            await failing(make(EchoStub(channel), method))
    assert [failed.request for failed in told] == [None]


def test_an_identifier():
    """RT-11: an identifier has 32 hexadecimal digits, like a trace id, and is unique."""
    made = {str(CallId()) for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)


def test_an_identifier_stays():
    """RT-11: a call's identifier is created when it is first used and does not change."""
    one, other = CallId(), CallId()
    first = str(one)
    assert first == str(one) != str(other)
    assert re.fullmatch("[0-9a-f]{32}", str(one))


def test_no_seed_repeats_them():
    """RT-11: identifiers differ even if the program seeds `random`."""
    made = []
    for _ in range(2):
        random.seed(4)
        made.append(str(CallId()))
    assert made[0] != made[1]


FORKING = """
import os

from grpc_backoff.telemetry.trace import CallId

str(CallId())
for _ in range(3):
    child = os.fork()
    if child == 0:
        break
    os.waitpid(child, 0)
os.write(1, f"{str(CallId())}\\n".encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_unique_over_forks():
    """RT-11: processes forked at the same moment create different identifiers.

    The test runs in a process in which grpc's core has not started, because forking while it runs can hang.
    """
    said = subprocess.run([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert len(set(said.stdout.split())) == 4
