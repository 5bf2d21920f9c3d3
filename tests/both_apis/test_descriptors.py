"""What channels do when a process has no file descriptors left."""

from __future__ import annotations

import sys

import pytest

from tests.programs import output


@pytest.mark.parametrize("which", ["asyncio", "threads"])
async def test_an_outage_without_descriptors(which):
    """CB-4, TH-5: attempts go on failing while there are no descriptors, and succeed again afterwards.

    Starting grpcio's core without a descriptor would abort the process, so it must not stop between two attempts. Waits
    about two seconds.
    """
    status, text = await output(sys.executable, "-m", "tests.both_apis.descriptors", which, within=100)
    assert (status, text.splitlines().count("3 ['a']")) == (0, 1), text  # the core may print more lines
