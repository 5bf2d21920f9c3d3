"""One text for both faces: which faces and which ways of calling a test runs with.

A test that takes `face` runs on plain grpc and on ours, one that takes `ours` on ours alone, one that takes `kind` also
on ours with retries for every call. One that takes `way` beside it runs in every way that its face can make a call, one
that takes `cancellable` in those whose calls can be cancelled.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.faces.face import KINDS, AsyncioFace, ThreadedFace
from tests.sync.conftest import no_thread_is_left
from tests.sync.service import place

__all__ = ["no_thread_is_left"]

FACES = {"asyncio": AsyncioFace, "threads": ThreadedFace}
WHICH = {"face": ("plain", "ours"), "ours": ("ours",), "kind": tuple(KINDS)}


def pytest_generate_tests(metafunc):
    # Threads have nothing to do with a loop.
    names = FACES if metafunc.config.getoption("--loop") == "asyncio" else ("asyncio",)
    for fixture in WHICH.keys() & set(metafunc.fixturenames):
        ways = [each for each in ("way", "cancellable") if each in metafunc.fixturenames]
        if not ways:
            rows = [((name, kind),) for name in names for kind in WHICH[fixture]]
        else:
            attribute = {"way": "ways", "cancellable": "cancellable"}[ways[0]]
            rows = [
                ((name, kind), way)
                for name in names
                for kind in WHICH[fixture]
                for way in getattr(FACES[name], attribute)
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
def server():
    """A running server's place; its `target` is where it listens."""
    with place() as made:
        yield made


@pytest.fixture
def nowhere():
    """A place whose server does not run yet."""
    with place(up=False) as made:
        yield made
