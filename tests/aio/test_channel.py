"""Features that only this library's channel has: its end (CB-10), arguments, and the sources of its policy (BP-3)."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import warnings
import weakref

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from grpc_backoff.decide.connections import events
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.jitter import Proportional
from grpc_backoff.policy.pooling import PoolPolicy
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing import FakeClock
from grpc_backoff.testing.front import FlakyFront, silent
from tests.aio.test_waiting import QUICK, failing, front
from tests.both_apis.interceptors import for_asyncio, go_on
from tests.echo import EchoStub, Message, serving

__all__ = ["front"]


async def settle():
    """Run the event loop for a while, so that cancelled tasks can end."""
    for _ in range(20):
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("interceptors", [None, for_asyncio(go_on)], ids=["bare", "intercepted"])
async def test_dropped_channel_stops(front, interceptors):
    """CB-10: a channel that is dropped without `close()` stops dialling and issues a ResourceWarning.

    It is garbage-collected even if interceptors made its calls run in tasks.
    """
    # grpcio before 1.8x pins the locals of all tasks
    channels = [aio.insecure_channel(front.target, options=QUICK, interceptors=interceptors)]
    await failing(EchoStub(channels[0]).Unary(Message()))
    await settle()
    gone, manager = weakref.ref(channels[0]), channels[0]._pool.rules.only

    def drop():
        channels.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed channel"):
        drop()
    assert gone() is None
    await settle()
    assert manager.state is events.State.SHUTDOWN


async def test_a_listener_stops_the_dialling():
    """CB-10: `stop_dialling` has an effect at once, even if the next attempt is due without a pause. Takes 0.5 s."""
    heard = []

    def hear(event):
        heard.append(type(event))
        if isinstance(event, events.AttemptFailed):
            channel.stop_dialling()

    limits = [("grpc.min_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 100)]
    async with FlakyFront(silent) as peer, aio.insecure_channel(peer.target, limits, listeners=[hear]) as channel:
        assert channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.IDLE
        async with asyncio.timeout(20):
            while events.AttemptFailed not in heard:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert len(peer.visits) == 1
    assert heard.count(events.AttemptStarted) == 1


async def test_dropped_channel_stops_where_warnings_are_errors(front, monkeypatch):
    """CB-10: a dropped channel stops dialling even if its ResourceWarning is turned into an error."""
    channels = [aio.insecure_channel(front.target, options=QUICK)]
    await failing(EchoStub(channels[0]).Unary(Message()))
    await settle()
    raised, manager = [], channels[0]._pool.rules.only
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(type(unraisable.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        channels.clear()
        gc.collect()
    await settle()
    assert raised == [ResourceWarning]
    assert manager.state is events.State.SHUTDOWN


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70),
    reason="grpcio 1.63 keeps the callbacks of a finished call, which refer to the call, until the collector runs",
)
async def test_a_closed_channel_is_freed():
    """CB-10: what a closed channel had in the core is freed at once, not when the garbage collector runs."""
    gc.collect()
    gc.disable()
    try:
        async with serving() as port:
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await EchoStub(channel).Unary(Message())
                connection = next(iter(channel._pool._connectors()[0].open))
                gone = [
                    weakref.ref(connection),
                    weakref.ref(connection.channel),
                ]
            del channel, connection
            await settle()
            assert [ref() for ref in gone] == [None] * 2
    finally:
        gc.enable()


async def test_stub_keeps_its_channel(front):
    """CH-2: a stub keeps its channel alive."""
    channel = aio.insecure_channel(front.target, options=QUICK)
    stub, gone = EchoStub(channel), weakref.ref(channel)
    del channel
    gc.collect()
    await failing(stub.Unary(Message()))
    await front.listen()
    async with asyncio.timeout(30):
        assert (await stub.Unary(Message(text="a"), wait_for_ready=True)).text == "a"
    await gone().close()


async def test_waiters_are_told_of_the_end():
    """CB-10: closing the channel makes a pending `channel_ready()` raise UsageError."""
    async with FlakyFront(silent) as peer:
        channel = aio.insecure_channel(peer.target)
        waiting = asyncio.create_task(channel.channel_ready())
        await asyncio.sleep(0.05)
        await channel.close()
        with pytest.raises(grpc.aio.UsageError):
            await waiting


async def test_a_channel_says_where_its_values_come_from(tmp_path, monkeypatch):
    """BP-3: a value comes from the argument, else the option, the file or a preset, and its source is recorded."""
    for name, jitter in (("argument", 0.1), ("option", 0.3), ("environment", 0.4)):
        (tmp_path / f"{name}.toml").write_text(f'[targets."t:*"]\njitter = {jitter}\n')
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(tmp_path / "environment.toml"))
    by_option = [("grpc_backoff.config", tmp_path / "option.toml"), ("grpc_backoff.multiplier", 3)]

    def values(target="t:1", options=(), **how):
        channel = aio.insecure_channel(target, options, **how)
        channels.append(channel)
        return {part: (value.value, value.origin) for part, value in channel.policy_values.items()}

    channels = []
    given = values(options=by_option, config=tmp_path / "argument.toml")
    assert given["jitter"] == (Proportional(0.1), f'file {tmp_path}/argument.toml: targets."t:*".jitter')
    assert given["multiplier"] == (3.0, "option: grpc_backoff.multiplier")
    assert given["max_delay"] == (120.0, "preset grpc")
    assert values(options=by_option)["jitter"][0] == Proportional(0.3)
    assert values()["jitter"][0] == Proportional(0.4)
    assert values("other:1")["jitter"] == (Proportional(0.2), "preset grpc")
    assert set(values(policy=CONNECT)) == set(values("other:1"))
    connect, pool = values(policy=CONNECT), {*PoolPolicy._fields}
    assert {origin for part, (_, origin) in connect.items() if part not in pool} == {"argument"}
    assert {origin for part, (_, origin) in connect.items() if part in pool} == {"preset grpc"}
    assert channels[0].policy.backoff.jitter == Proportional(0.1)
    with pytest.raises(TypeError):
        channels[0].policy_values["jitter"] = channels[0].policy_values["multiplier"]  # read-only
    for channel in channels:
        await channel.close()


async def listens(event):
    """Do nothing; as a coroutine function, this is not a valid listener."""


async def test_arguments_of_the_right_kind():
    """CH-10: any object with the required methods is accepted, by the constructor and by `add_listener`."""
    async with aio.insecure_channel("127.0.0.1:1", rng=random, clock=FakeClock(), listeners=iter([print])) as channel:
        with pytest.raises(OptionError, match=r"^listener="):
            channel.add_listener(listens)


async def test_target_in_bytes():
    """CH-8: a target may be bytes, as in grpcio; events contain it as text."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}".encode()) as channel:
        heard = []
        channel.add_listener(heard.append)
        assert (await EchoStub(channel).Unary(Message(text="a"), timeout=30)).text == "a"
    assert {event.target for event in heard} == {f"127.0.0.1:{port}"}


async def test_a_service_config_is_read_once(monkeypatch):
    """CH-8, RT-10: a service config is parsed for the settings and to dial, once for all channels that have it."""
    read = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text, **how: read.append(text) or loads(text, **how))
    config = '{"methodConfig": [{"name": [{}], "waitForReady": true}], "comment": "read once"}'
    counts = []
    for _ in range(3):
        async with aio.insecure_channel("127.0.0.1:1", options=[("grpc.service_config", config)]) as channel:
            EchoStub(channel)
        counts.append(len(read))
    assert 0 < counts[0] <= 2
    assert counts == counts[:1] * 3
