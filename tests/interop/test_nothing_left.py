"""What a closed channel leaves behind: nothing, even without garbage collection.

Each case runs in its own process, because the core, its threads and the collector are shared by the whole process. The
tests take a few seconds of real time.
"""

from __future__ import annotations

import ast
import sys

import grpc
import pytest

from tests import programs
from tests.echo import serving
from tests.interop.leaving_nothing import USES


async def program(*arguments):
    status, said = await programs.output(sys.executable, "-m", "tests.interop.leaving_nothing", *arguments, within=100)
    assert status == 0, said
    return ast.literal_eval(said.strip().splitlines()[-1]), said


@pytest.mark.parametrize("use", list(USES))
async def test_two_hundred_loops(use):
    """CB-10: a channel that was closed on its loop leaves no log record, no object and no thread."""
    async with serving() as port:
        left, said = await program("loops", use, f"127.0.0.1:{port}")
    assert left == {"records": [], "left": 0, "threads": 1}, said
    assert "Traceback" not in said


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70),
    reason="with grpcio 1.63 a forked child can hang after any channel was READY; not found out yet why",
)
@pytest.mark.parametrize("use", ["idle", "ready", "failing"])
async def test_six_forks(use):
    """CB-10: a second after `close`, grpc's core is idle, so a forked child can make a channel and a call.

    If anything of the channel were left, all children would fail. On a loaded machine, grpcio may take longer.
    """
    async with serving() as port:
        left, said = await program("forks", use, f"127.0.0.1:{port}")
    assert left["failed"] <= 1, said
