"""Stopping the suite's programs while they work."""

from __future__ import annotations

import asyncio
import os
import signal

import click
import pytest

from grpc_judge.runner.until_told import run_to_the_end, run_until_told


def working(number, ended):
    async def work():
        try:
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
            await asyncio.sleep(30)
        finally:
            ended.append(number)

    return work()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop(number):
    """IO-4: SIGINT and SIGTERM cancel the work, so that it can clean up."""
    ended = []
    with pytest.raises(click.Abort):
        run_to_the_end(working(number, ended))
    assert run_until_told(working(number, ended)) is None
    assert ended == [number] * 2


def test_to_the_end():
    """IO-4: `run_to_the_end` returns the result of the work, or raises its error."""

    async def work(result):
        if result is None:
            raise ValueError("nothing")
        return result

    assert run_to_the_end(work([])) == []
    with pytest.raises(ValueError, match="nothing"):
        run_to_the_end(work(None))
