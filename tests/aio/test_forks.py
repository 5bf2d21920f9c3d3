"""FK-1: asyncio channels in the child of a fork, tested with real programs that fork."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import grpc
import pytest

import grpc_backoff
from grpc_backoff import ForkError, aio
from grpc_backoff.grpcio import forks
from tests.echo import serving
from tests.sync.test_forks import needs_forks, run

PROGRAM = Path(__file__).parent / "forking.py"
ON_LOOP = Path(__file__).parent / "forking_on_loop.py"


@needs_forks
@pytest.mark.parametrize("phase", ["idle", "ready", "backoff", "closing", "closed"])
async def test_children(phase):
    """FK-1: in the child, using an inherited channel raises ForkError; so does creating a channel that would hang.

    A channel that was closed just before the fork counts as open. The programs run without grpcio's own fork support.
    With it, a child crashes if there was a connection at the fork, even with plain grpc.
    """
    async with serving() as port:
        done = await asyncio.to_thread(run, "0", PROGRAM, phase, f"127.0.0.1:{port}")
    inherited, made, child = ast.literal_eval(done.stdout)
    assert inherited == ["ForkError", *(["UsageError"] * 2 if phase in ("closing", "closed") else ["ForkError"] * 2)]
    assert made == ("new" if phase == "closed" else "ForkError")
    assert child == 0


async def test_what_is_refused_with_fork_support(monkeypatch):
    """FK-1: even with grpcio's fork support, no asyncio channel works in the child if one was open at the fork."""
    monkeypatch.setattr(forks, "_now", forks.Generation(after_asyncio=True))
    monkeypatch.setattr(forks, "survives_forks", lambda: True)
    for credentials in ((), (grpc.ssl_channel_credentials(),)):
        make = aio.secure_channel if credentials else aio.insecure_channel
        with pytest.raises(ForkError, match="asyncio channels open"):
            make("127.0.0.1:1", *credentials)
    grpc_backoff.insecure_channel("127.0.0.1:1").close()


@needs_forks
@pytest.mark.parametrize(("phase", "up"), [("ready", True), ("backoff", False)])
async def test_children_on_the_same_loop(phase, up):
    """FK-1: a child that goes on with the parent's own loop gets ForkError too, and nothing of the parent's dials."""
    async with serving() as port:
        target = f"127.0.0.1:{port if up else 1}"
        done = await asyncio.to_thread(run, "0", ON_LOOP, phase, target)
    said, _, child = done.stdout.partition("|")
    waited = [] if up else ["ended"]
    assert (ast.literal_eval(said.strip()), int(child)) == (["ForkError"] * 6 + waited + ["ForkError"], 0)
