"""The contention example on a real etcd: its figures are correct, and it leaves nothing behind.

It needs Debian's package etcd-server. The assertions about success hold on any machine, however slow, because a commit
loses a race only to another that succeeds: see `test_nobody_loses_more_often_than_others_win`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import grpc
import psutil
import pytest
from click.testing import CliRunner

from examples import contention, etcd
from examples.gateway import serving
from examples.protos import counters, counters_services
from grpc_backoff import parse_policy

pytestmark = [
    pytest.mark.etcd,
    pytest.mark.skipif(
        shutil.which("etcd") is None and not os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS"),
        reason="etcd is not installed (Debian package etcd-server)",
    ),
]

ROOT = Path(__file__).parents[2]
COMMITS = 3
OLD_WAY, PRESET = contention.POLICIES
ATTEMPTS = {OLD_WAY: 4, PRESET: 7}


def run(folder, *arguments):
    """Run the example; return its results and its output."""
    done = CliRunner().invoke(contention.main, [*arguments, "--json", str(folder / "results.json")])
    assert done.exit_code == 0, done.output
    return json.loads((folder / "results.json").read_text()), done.output


@pytest.fixture(scope="module")
def at_once(tmp_path_factory):
    """Return the results for clients that commit in step, by number of clients and policy. Takes some seconds."""
    results, said = run(
        tmp_path_factory.mktemp("contention"), "--clients", "2,7,10", "--commits", str(COMMITS), "--work", "20"
    )
    assert all(f"{result['clients']}   {result['policy']}" in said for result in results)
    return {(result["clients"], result["policy"]): result for result in results}


def test_every_policy_meets_every_number_of_clients(at_once):
    """RT-5: every policy runs with every number of clients, and every client makes all of its commits."""
    assert list(at_once) == [(clients, policy) for clients in (2, 7, 10) for policy in (OLD_WAY, PRESET)]
    assert all(result["commits"] == COMMITS * clients for (clients, _), result in at_once.items())


def test_no_commit_is_lost_or_made_twice(at_once):
    """RT-5: etcd counts exactly the commits reported as done, so attempts that ended with ABORTED wrote nothing."""
    assert [(result["unknown"], result["counter"]) for result in at_once.values()] == [
        (0, result["done"]) for result in at_once.values()
    ]


def test_tries_are_those_of_the_policy(at_once):
    """RT-1: no client exceeds its policy's attempts; if clients outnumber attempts, some client uses all of its own."""
    assert {policy: parse_policy(_words(policy)).max_attempts for policy in ATTEMPTS} == ATTEMPTS
    for (clients, policy), result in at_once.items():
        assert result["most_attempts"] <= min(clients, ATTEMPTS[policy])
        assert result["commits"] <= result["attempts"] <= result["commits"] * result["most_attempts"]
    assert at_once[10, OLD_WAY]["most_attempts"] == ATTEMPTS[OLD_WAY]


def _words(policy):
    words = contention.POLICIES[policy]
    return words if ":" in words else f"preset: {words}"


def test_nobody_loses_more_often_than_others_win(at_once):
    """RT-5: with as many attempts as clients, all commits succeed; with fewer, at least one commit per attempt does."""
    for (clients, policy), result in at_once.items():
        assert result["done"] >= COMMITS * min(clients, ATTEMPTS[policy])
    assert at_once[7, PRESET]["done"] == COMMITS * 7


def test_the_preset_does_what_the_old_way_does_not(at_once):
    """RT-5: ten clients complete at least as many commits with the preset as with the old policy.

    If ten clients commit in step with four attempts each, six of them can only lose. On a machine that stalls, the old
    policy's clients get out of step and may complete as many commits, but never more.
    """
    assert at_once[10, PRESET]["done"] >= at_once[10, OLD_WAY]["done"]


def test_steadily(tmp_path):
    """RT-5: with `--steady`, clients do not wait for each other; `--against` adds rows for another policy."""
    words = "preset: contention, jitter: full"
    results, said = run(
        tmp_path, "--steady", "--clients", "3", "--commits", "5", "--work", "0", "--against", words, "--seed", "1"
    )

    assert [result["policy"] for result in results] == [OLD_WAY, PRESET, words]
    assert all(result["done"] == result["counter"] <= result["commits"] == 15 for result in results)
    assert f"{sum(result['done'] for result in results)} commits reported as done" in said


async def test_a_lost_race_is_aborted_and_writes_nothing():
    """RT-5: of two commits that read the same value, one succeeds; the other is ABORTED and writes nothing.

    Uses real time: both clients read within the half second that the first commit takes.
    """
    async with (
        etcd.running() as store,
        serving(store, 0.5) as (target, gateway),
        grpc.aio.insecure_channel(target) as channel,
    ):
        commit = counters_services.CountersStub(channel).Commit
        request = counters.CommitRequest(key="one", change=3)
        calls = [commit(request, wait_for_ready=True) for _ in range(2)]
        codes = [await call.code() for call in calls]
        assert sorted(code.name for code in codes) == ["ABORTED", "OK"]
        assert (await gateway.read("one"))[0] == 3


@pytest.mark.parametrize("later", [0, 2], ids=["while etcd starts", "amid commits"])
async def test_it_stops_its_etcd(later, tmp_path):
    """RT-5: the example runs in any directory, and SIGTERM also ends its etcd and removes its files.

    Uses real time: on a slow machine, etcd may still be starting after two seconds.
    """
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'trap "" INT; exec "$@"', "sh"),  # ignores SIGINT, like nohup and a shell's `&`
        *(sys.executable, ROOT / "examples" / "contention.py", "--commits", "100000"),
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        while not (children := psutil.Process(process.pid).children()):
            await asyncio.sleep(0.05)
        assert list(tmp_path.iterdir())
        await asyncio.sleep(later)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 1
    assert [child.is_running() for child in children] == [False]
    assert not list(tmp_path.iterdir())


async def test_an_etcd_that_does_not_start(tmp_path, monkeypatch):
    """RT-5: if etcd ends at once, the example does not wait for it, and its error has etcd's last output."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(etcd, "_free_port", lambda: taken.getsockname()[1])
        monkeypatch.setattr(etcd.tempfile, "tempdir", str(tmp_path))
        with pytest.raises(etcd.EtcdError, match=r"^etcd did not start: .*address already in use"):
            async with asyncio.timeout(25), etcd.running():
                pass
    assert not list(tmp_path.iterdir())
