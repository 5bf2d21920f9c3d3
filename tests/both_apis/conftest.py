"""Runs each test on both APIs, the asyncio and the threaded API, and with every way of making a call.

A test that takes `api` runs on plain grpc and on this library; one that takes `ours`, on this library only; and one
that takes `kind`, also on this library with retries for every call. If it also takes `way`, it runs for every way in
which the API can make a call. With `cancellable`, it runs for those ways whose calls can be cancelled, with `sending`,
for those that send a stream of requests, and with `hedgeable`, for those that send one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from tests.both_apis.api import KINDS, RETRY, AsyncioApi, ThreadedApi
from tests.both_apis.log import Log
from tests.both_apis.tries import Tries
from tests.certificates import client_credentials, server_credentials
from tests.sync.conftest import no_thread_is_left
from tests.sync.service import place

__all__ = ["no_thread_is_left"]

APIS = {"asyncio": AsyncioApi, "threads": ThreadedApi}
WAYS = {"way": "ways", "cancellable": "cancellable", "sending": "sending", "hedgeable": "hedgeable"}
WHICH = {"api": ("plain", "ours"), "ours": ("ours",), "kind": tuple(KINDS)}


def pytest_generate_tests(metafunc):
    # Threaded channels do not use the event loop, so one kind of loop is enough for them.
    names = APIS if metafunc.config.getoption("--loop") == "asyncio" else ("asyncio",)
    for fixture in WHICH.keys() & set(metafunc.fixturenames):
        ways = [each for each in WAYS if each in metafunc.fixturenames]
        phase = ["phase"] if "phase" in metafunc.fixturenames else []
        rows = [
            ((name, kind), *rest)
            for name in names
            for kind in WHICH[fixture]
            for rest in itertools.product(
                *(getattr(APIS[name], WAYS[each]) for each in ways),
                # Plain grpc hides the difference itself, so its calls run on a fresh channel only.
                *(["fresh"] if kind == "plain" else ["fresh", "ready"] for _ in phase),
            )
        ]
        ids = ["-".join((*row[0], *row[1:])) for row in rows]
        metafunc.parametrize([fixture, *ways, *phase], rows, ids=ids, indirect=[fixture, *phase])


def _api(request):
    name, kind = request.param
    if name == "threads":
        api = ThreadedApi(kind)
    else:
        factory = asyncio.new_event_loop
        if request.config.getoption("--loop") == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        api = AsyncioApi(kind, factory)
    yield api
    api.close()


api = pytest.fixture(_api, name="api")
ours = pytest.fixture(_api, name="ours")
kind = pytest.fixture(_api, name="kind")


@pytest.fixture
def phase(request):
    """The channel's phase at the first call; see `tests/conftest.py`."""
    return request.param


@pytest.fixture
def in_phase(kind, phase):
    """A function that opens a channel, and yields it in the phase under test."""

    @contextlib.contextmanager
    def opens(target, options=(), **how):
        with kind.channel(target, options, **how) as channel:
            if phase == "ready":
                channel.ready()
            yield channel

    return opens


@pytest.fixture
def log():
    """A listener that records events."""
    return Log()


@pytest.fixture
def ready(ours, log):
    """A function that opens a channel whose events `log` records, and yields it when it is READY."""

    @contextlib.contextmanager
    def opens(target, options=(), **how):
        with ours.channel(target, options, listeners=[log.hear], **how) as channel:
            channel.ready()
            yield channel

    return opens


@pytest.fixture
def trying(ours, log):
    """A function that runs a server with given behaviours, opens a retrying channel to it, and yields both."""

    @contextlib.contextmanager
    def opens(*behaviours, tls=False, threads=32, retry=RETRY, **how):
        service = Tries(*behaviours)
        how |= {"credentials": client_credentials()} if tls else {}
        with (
            place(service, server_credentials() if tls else None, threads=threads) as server,
            ours.channel(server.target, retry=retry, listeners=[log.hear], **how) as channel,
        ):
            yield service, channel

    return opens


@pytest.fixture
def nowhere():
    """A port on which no server has been started yet."""
    with place(up=False) as made:
        yield made
