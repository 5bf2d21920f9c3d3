"""The event loop that the tests run on: asyncio's, or uvloop with `--loop uvloop`; and what all tests need."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import os
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from grpc_backoff.decide.calls import budget, resets
from grpc_backoff.engine.registry import SCHEDULES
from grpc_backoff.engine.spares import SPARES


def pytest_addoption(parser):
    parser.addoption("--loop", choices=["asyncio", "uvloop"], default="asyncio", help="the event loop of all tests")


def pytest_configure(config):
    """Let property tests take as long as they need: by default, Hypothesis fails an example that takes 0.2 s.

    In CI, they draw the same 100 examples every time, so that a failure is due to the change that is tested.
    """
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        in_ci = bool(os.environ.get("CI") or os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS"))
        settings.register_profile("unhurried", deadline=None, derandomize=in_ci, max_examples=100)
        settings.load_profile("unhurried")


def pytest_collection():
    """Collect no garbage while the tests are collected: it would go through ever more objects and find nothing."""
    gc.disable()


def pytest_collection_finish():
    """Leave the collected tests out of garbage collection; many a test collects, and would go through all of them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config, item):
    name = config.getoption("--loop")
    if name == "asyncio":
        return {name: asyncio.new_event_loop}
    import uvloop

    return {name: uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _core_stays():
    """Keep grpc's core from shutting down between tests, and at their end.

    grpcio stops a server and frees a channel while it holds the interpreter's lock. If that server or channel was the
    last, the core then waits for its threads, and a thread that frees credentials written in Python waits for the
    interpreter. That is a deadlock.
    """
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port("127.0.0.1:0")
    server.start()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server._state.server))


@pytest.fixture(autouse=True)
def _no_earlier_backoff():
    """Forget what closed channels left (SH-5, SH-8): the kernel may assign a port of an earlier test again."""
    with SCHEDULES.lock:
        SCHEDULES._sweep(math.inf)
    SPARES.close()
    SPARES._avoided.clear()
    # Of these, a channel that the collector has yet to free still keeps what it knows of its target.
    budget._shared.clear()
    resets._calms.clear()


@pytest.fixture(params=["fresh", "ready"])
def phase(request):
    """The channel's phase at the first call: fresh, where the call has to wait for a connection, or READY."""
    return request.param


@pytest.fixture
def server():
    """A running server on its own port; its address is `target`."""
    from tests.sync.service import place  # some suites run without grpcio-tools

    with place() as made:
        yield made
