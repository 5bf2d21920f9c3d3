"""Runs each test on both faces, the asyncio and the threaded API, and with every way of making a call.

A test that takes `face` runs on plain grpc and on this library; one that takes `ours`, on this library only; and one
that takes `kind`, also on this library with retries for every call. If it also takes `way`, it runs for every way in
which the face can make a call. With `cancellable`, it runs for those ways whose calls can be cancelled, and with
`sending`, for those that send a stream of requests.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.certificates import client_credentials, server_credentials
from tests.faces.face import KINDS, RETRY, AsyncioFace, ThreadedFace
from tests.faces.log import Log
from tests.faces.tries import Tries
from tests.sync.conftest import no_thread_is_left
from tests.sync.service import place

__all__ = ["no_thread_is_left"]

FACES = {"asyncio": AsyncioFace, "threads": ThreadedFace}
WAYS = {"way": "ways", "cancellable": "cancellable", "sending": "sending"}
WHICH = {"face": ("plain", "ours"), "ours": ("ours",), "kind": tuple(KINDS)}


def pytest_generate_tests(metafunc):
    # Threaded channels do not use the event loop, so one kind of loop is enough for them.
    names = FACES if metafunc.config.getoption("--loop") == "asyncio" else ("asyncio",)
    for fixture in WHICH.keys() & set(metafunc.fixturenames):
        ways = [each for each in WAYS if each in metafunc.fixturenames]
        if not ways:
            rows = [((name, kind),) for name in names for kind in WHICH[fixture]]
        else:
            rows = [
                ((name, kind), way)
                for name in names
                for kind in WHICH[fixture]
                for way in getattr(FACES[name], WAYS[ways[0]])
            ]
        ids = ["-".join((*row[0], *row[1:])) for row in rows]
        metafunc.parametrize([fixture, *ways], rows, ids=ids, indirect=[fixture])


def _face(request):
    name, kind = request.param
    if name == "threads":
        face = ThreadedFace(kind)
    else:
        factory = asyncio.new_event_loop
        if request.config.getoption("--loop") == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        face = AsyncioFace(kind, factory)
    yield face
    face.close()


face = pytest.fixture(_face, name="face")
ours = pytest.fixture(_face, name="ours")
kind = pytest.fixture(_face, name="kind")


@pytest.fixture
def log():
    """A listener that records events."""
    return Log()


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
