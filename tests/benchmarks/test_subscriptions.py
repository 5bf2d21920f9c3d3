"""SB-1: the program that cuts a subscription's stream, in a short form."""

from __future__ import annotations

import pytest

from benchmarks.subscriptions import CUTS, run


@pytest.mark.parametrize("threads", [False, True], ids=["asyncio", "threads"])
async def test_nothing_lost(threads):
    """SB-1: kills, freezes, ends and a proxy's resets lose no item and repeat none; takes seconds, no deadline."""
    read, gaps, made, opens = await run(40, seed=3, threads=threads)

    assert set(made) == set(CUTS)
    assert read == list(range(len(read)))
    assert len(gaps) >= 39  # one for each cut, except two in a row
    assert opens >= 40
