"""CH-8: reading a service config, and how it applies to pending calls."""

from __future__ import annotations

import json
from types import SimpleNamespace

from grpc_backoff import Failure, Stage, aio
from grpc_backoff.config import service_config
from grpc_backoff.config.service_config import read_json
from grpc_backoff.testing.front import FlakyFront
from tests.echo import EchoStub, Message


def options(*method_configs, **more):
    return [("grpc.service_config", json.dumps({"methodConfig": list(method_configs), **more}))]


async def test_read_once(monkeypatch):
    """CH-8, RT-10: a channel reads its service config only once, for pending calls and for retries."""
    read = []
    monkeypatch.setattr(service_config, "read_json", lambda text: read.append(text) or read_json(text))
    chosen = options({"name": [{}], "waitForReady": True})
    async with aio.insecure_channel("127.0.0.1:1", options=chosen) as channel:
        EchoStub(channel)

    assert read == [chosen[0][1]]


async def test_a_name_that_no_longer_resolves():
    """CH-3: once a name has been resolved, its service config stays in force, even if the name no longer resolves."""
    chosen = options({"name": [{}], "waitForReady": True})
    tcp, resolve = Failure(Stage.TCP, "refused"), Failure(Stage.RESOLVE, "no such name")
    async with FlakyFront() as front:
        await front.refuse()
        async with aio.insecure_channel(front.target, options=chosen) as channel:
            call = EchoStub(channel).Unary(Message())
            failures, manager = [resolve, tcp], channel._pending.manager
            channel._pending.manager = SimpleNamespace(status=lambda: SimpleNamespace(last_error=failures.pop()))
            channel._pending.fail()
            channel._pending.fail()
            assert not call.done()
            channel._pending.manager = manager
            call.cancel()
