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


async def test_it_accounts_for_its_calls_early():
    """IO-4: a program that reads the second line reports what it has; one that does not is not waited for."""
    async with running(READY + "sys.stdin.readline(); " + DONE, seconds=60) as peer:
        await peer.ready()
        await peer.begin()
        account = await peer.stop()
    assert account.calls.made == 3


@pytest.mark.parametrize("ignores", ["import time; time.sleep(60)", "sys.stdin.close(); sys.stdout.close()"])
async def test_it_does_not_account_for_its_calls_early(monkeypatch, ignores):
    """IO-4: a program that does not, or cannot, say early how its calls ended is not at fault."""
    monkeypatch.setattr(process, "_ASKED", 0.3)
    async with running(READY + ignores, seconds=60) as peer:
        await peer.ready()
        await peer.begin()
        assert await peer.stop() is None


CHILD = "import sys, subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600.123)']); "
SLEEP = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("program", "limit", "complaint"),
    [
        # the error for a program that fails has its exit status and its last output
        ("raise SystemExit('no such library')", "", "ended with status 1: no such library"),
        # a program that ends without accounting for its calls counts as failed
        (READY, "", "ended with status 0"),
        # so does one whose account is malformed
        (READY + 'print(\'{"event": "done", "made": 3}\')', "", "said what is no account of its calls"),
        (READY + "print('x' * 100_000)", "", "said what is no account of its calls"),
        # a program that is not ready within the limit, or does not end, is killed
        (SLEEP, "_STARTUP", "was not ready within 0.2 s"),
        (READY + CHILD + SLEEP, "_WINDING_DOWN", "went on for 0.2 s after its time"),
        # the processes that a program started are killed and not waited for, even if it fails
        (CHILD + "sys.exit('broken')", "", "ended with status 1: broken"),
    ],
)
async def test_a_program_that_breaks_the_contract(monkeypatch, program, limit, complaint):
    """IO-4: a program that breaks the contract is ended with all that it started, and the error says what it did."""
    if limit:
        monkeypatch.setattr(process, limit, 0.2)
    async with asyncio.timeout(30):
        with pytest.raises(ProgramError) as caught:
            await whole(program)
    assert str(caught.value) == f"made up {complaint}"
    await gone("600.123")


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
