"""A peer's process: programs that keep to the contract, and programs that break it."""

from __future__ import annotations

import asyncio
import sys

import psutil
import pytest

from grpc_judge.clients import peer_process as process
from grpc_judge.clients.peer import Peer, Setting
from grpc_judge.clients.peer_process import PeerProcess
from grpc_judge.conformance import Calls
from grpc_judge.runner.process import ProgramError
from grpc_judge.runner.program import ROOT

READY = 'import sys; print(\'{"event": "ready"}\', flush=True); sys.stdin.readline(); '
DONE = (
    "import json; print(json.dumps({'event': 'done', 'made': 3, 'ok': 1, 'failed': {'UNAVAILABLE': 1}, "
    "'unfinished': 1, 'versions': {'argv': sys.argv[1:]}}))"
)


def running(program, *, seconds=0.1, settings=None, ca=None):
    peer = Peer(name="made up", folder=ROOT, command=(sys.executable, "-c", program), configurable=frozenset())
    return PeerProcess(peer, "127.0.0.1:1", seconds, settings or {}, ca)


async def whole(program, **told):
    """Run a program from start to finish and return its account of its calls."""
    async with running(program, **told) as peer:
        await peer.ready()
        await peer.begin()
        return await peer.account()


async def outcome(program):
    """Return the error message for a program that breaks the contract."""
    with pytest.raises(ProgramError) as caught:
        await whole(program)
    return str(caught.value)


async def test_a_program_that_does_as_it_should(tmp_path):
    """IO-4: a peer's program receives its command line, starts on the start signal, and accounts for its calls."""
    settings = {Setting.INITIAL: 200, Setting.STABLE_AFTER: 2000}
    account = await whole("print('hello'); " + READY + DONE, settings=settings, ca=tmp_path)
    assert account.calls == Calls(made=3, ok=1, failed={"UNAVAILABLE": 1}, unfinished=1)
    given = "--target 127.0.0.1:1 --seconds 0.1 --workers 4 --pause-ms 20 --initial-ms 200 --stable-after-ms 2000 --ca"
    assert account.versions["argv"] == [*given.split(), str(tmp_path)]


async def test_it_waits_for_the_word():
    """IO-4: a program waits for the start signal, so no client starts while another is still loading."""
    async with running(READY + DONE) as peer:
        await peer.ready()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.account(), 0.3)


async def test_a_program_that_fails():
    """IO-4: the error for a program that fails has its exit status and its last output."""
    assert await outcome("raise SystemExit('no such library')") == "made up ended with status 1: no such library"


async def test_a_program_that_says_nothing_at_the_end():
    """IO-4: a program that ends without accounting for its calls counts as failed."""
    assert await outcome(READY) == "made up ended with status 0"


@pytest.mark.parametrize("said", ['{"event": "done", "made": 3}', "x" * 100_000], ids=["half", "endless"])
async def test_a_program_that_says_nonsense(said):
    """IO-4: if a program's account of its calls is malformed, that peer fails, and the run continues."""
    assert await outcome(READY + f"print({said!r})") == "made up said what is no account of its calls"


async def test_a_program_that_never_gets_ready(monkeypatch):
    """IO-4: a program that is not ready within the limit is killed."""
    monkeypatch.setattr(process, "_STARTUP", 0.2)
    assert await outcome("import time; time.sleep(60)") == "made up was not ready within 0.2 s"


async def test_a_program_that_never_ends(monkeypatch):
    """IO-4: a program that does not end is killed, together with the processes that it started."""
    monkeypatch.setattr(process, "_WINDING_DOWN", 0.2)
    child = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600.123)']); "
    assert await outcome(READY + child + "import time; time.sleep(60)") == "made up went on for 0.2 s after its time"
    await gone("600.123")


async def test_a_program_that_breaks_down_and_leaves_another_behind():
    """IO-4: when a program fails, the processes that it started are killed and not waited for."""
    child = "import sys, subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600.321)']); "
    async with asyncio.timeout(30):
        assert await outcome(child + "sys.exit('broken')") == "made up ended with status 1: broken"
    await gone("600.321")


async def gone(words):
    """Wait until no process has these words on its command line."""
    async with asyncio.timeout(10):
        while any(words in " ".join(left.info["cmdline"] or ()) for left in psutil.process_iter(["cmdline"])):
            await asyncio.sleep(0.05)


async def test_a_program_that_is_not_there():
    """IO-4: a command that cannot be run is reported with the system's reason."""
    peer = Peer(name="made up", folder=ROOT, command=("/no/such/program",), configurable=frozenset())
    with pytest.raises(ProgramError, match=r"^made up cannot be run: .*No such file or directory"):
        await PeerProcess(peer, "127.0.0.1:1", 0.1, {}, None).__aenter__()


async def test_no_proxy(monkeypatch):
    """IO-4: a peer's program does not see the environment's proxy settings, since its server is local."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    proxies = "import os; assert not [name for name in os.environ if name.lower().endswith('_proxy')]; "
    await whole(proxies + READY + DONE)
