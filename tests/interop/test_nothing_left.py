"""What a closed channel leaves behind: nothing, even without garbage collection.

Each case runs in its own process, because the core, its threads and the collector are shared by the whole process. The
tests take a few seconds of real time.
"""

from __future__ import annotations

import ast
import sys

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
        left, said = await program(use, f"127.0.0.1:{port}")
    assert left == {"records": [], "left": 0, "threads": 1}, said
    assert "Traceback" not in said
