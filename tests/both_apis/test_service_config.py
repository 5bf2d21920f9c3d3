"""CH-8: how a service config applies to pending calls, compared with a plain channel."""

from __future__ import annotations

import json
import time

import grpc
import pytest

CODE = grpc.StatusCode
WAITING = {"name": [{}], "waitForReady": True}


def options(*method_configs, **more):
    return [("grpc.service_config", json.dumps({"methodConfig": list(method_configs), **more}))]


@pytest.mark.parametrize("name", [{}, {"service": "echo.v1.Echo"}, {"service": "echo.v1.Echo", "method": "Unary"}])
def test_wait_for_ready(kind, name, nowhere):
    """CH-8: `waitForReady` makes a call wait for the server, unless the call itself specifies otherwise."""
    chosen = [*options({"name": [name], "waitForReady": True}), ("grpc.initial_reconnect_backoff_ms", 100)]
    with kind.channel(nowhere.target, chosen) as channel:
        waits = channel.begin(texts=["waited"])
        assert channel.begin(wait_for_ready=False).outcome().code is CODE.UNAVAILABLE
        assert not waits.done()
        nowhere.start()
        assert waits.outcome().texts == ["waited"]


@pytest.mark.parametrize("method", ["Unary", "Down"])
def test_a_name_that_does_not_resolve(kind, method):
    """CH-3: a config's `waitForReady` applies once the name is resolved; until then only the call's own flag does."""
    with kind.channel("dns:///no-such-host.invalid:50051", options(WAITING)) as channel:
        for _ in range(2):  # before the first failure, and after it
            assert channel.begin(method, timeout=30).outcome().code is CODE.UNAVAILABLE
        assert channel.begin(method, wait_for_ready=True, timeout=0.3).outcome().code is CODE.DEADLINE_EXCEEDED


def test_other_methods_do_not_wait(kind, nowhere):
    """CH-8: the config of one method does not affect the others."""
    chosen = options({"name": [{"service": "echo.v1.Echo", "method": "Down"}], "waitForReady": True})
    with kind.channel(nowhere.target, chosen) as channel:
        assert channel.begin().outcome().code is CODE.UNAVAILABLE


@pytest.mark.parametrize("own", [None, 60, 0.2])
def test_timeout_bounds_the_wait(kind, own, nowhere):
    """CH-8: the smaller of the config's and the call's timeout bounds the wait; `time_remaining()` shows the call's."""
    with kind.channel(nowhere.target, options({**WAITING, "timeout": "0.3s"})) as channel:
        call = channel.begin("Down", timeout=own)
        assert (call.remaining() is None) == (own is None)
        # The duration is not checked: grpc's core counts a config's timeout from up to two seconds before the call.
        assert call.outcome().code is CODE.DEADLINE_EXCEEDED


@pytest.mark.parametrize("own", [None, 60, 0.9])
def test_a_timeout_is_that_of_the_call(ours, way, server, own):
    """CH-8: a config's `timeout` counts from the call's beginning, and its server sees it, in whatever phase.

    grpc's core counts it from up to two seconds before the call, and tells the server nothing (grpcio 1.85).
    """
    limit = 1.2  # enough for a slow machine to answer the quick calls
    with ours.channel(server.target, options({"name": [{}], "timeout": f"{limit}s"})) as channel:
        for _ in range(2):
            assert channel.begin(way, timeout=own).outcome().code is CODE.OK
        if way in ours.cancellable:
            remaining = channel.begin(way, timeout=own).remaining()
            assert (remaining is None) == (own is None), "as with grpcio, it is the call's own"
        began = time.monotonic()
        assert channel.begin(way, ["hang"], timeout=own).outcome().code is CODE.DEADLINE_EXCEEDED
        assert time.monotonic() - began >= min(own or limit, limit) - 0.05
    assert max(server.servicer.remaining) <= min(own or limit, limit) + 0.05


@pytest.mark.parametrize("limit", ["0s", "0.0009s", "315576000000s"])
def test_a_timeout_that_is_none(kind, way, server, limit):
    """CH-8: grpc's core takes a `timeout` under a millisecond, and one beyond the range of its clock, for no limit."""
    with kind.channel(server.target, options({"name": [{}], "timeout": limit})) as channel:
        for _ in range(2):  # a call that waits, and one that does not
            assert channel.begin(way).outcome().code is CODE.OK


def test_timeout_bounds_the_call(in_phase, server):
    """CH-8: a config's `timeout` ends a call that is running."""
    with in_phase(server.target, options({"name": [{}], "timeout": "0.5s"})) as channel:
        assert channel.begin(texts=["hang"]).outcome().code is CODE.DEADLINE_EXCEEDED
