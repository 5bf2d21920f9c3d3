"""Killing submitters and deliverers, and many processes on one ledger: short versions of `make ledger-full`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(220)
"""In seconds: each test starts a dozen interpreters, which takes 10 s on an idle machine, and 100 s on a busy one."""


def measured(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=200,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request):
    """A kind of database; PostgreSQL must be installed."""
    if request.param == "postgres":
        request.getfixturevalue("server")
    return request.param


@pytest.mark.slow
def test_kills(kind):
    """LG-6, LG-9: kills leave no operation lost or stuck; only one being acknowledged may be delivered twice."""
    verdict = measured("kills", "--database", kind, "--moments", "6")

    assert verdict["submitted"] > 0
    assert (verdict["lost"], verdict["unexplained"], verdict["stuck"]) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["asyncio", "threads"])
def test_servers_with_an_inbox_are_killed(kind, api):
    """IB-1, IB-6: kills of a server in its handler and in COMMIT leave one effect of each delivered operation."""
    tally = measured("inbox", "--database", kind, "--api", api, "--moments", "8")

    assert tally["repeated"] > 0
    assert (tally["twice"], tally["missing"], tally["stuck"]) == (0, 0, 0)


@pytest.mark.slow
def test_order_survives_kills(kind):
    """LG-15: two deliverers are killed again and again, and the operations of each order key still arrive in order."""
    verdict = measured("orders", "--database", kind, "--keys", "20", "--operations", "200", "--moments", "6")

    assert (verdict["kills"], verdict["out_of_order"], verdict["missed"]) == (6, 0, 0)


@pytest.mark.slow
def test_processes_share(kind):
    """LG-6: when several processes claim, every operation is claimed, and not again while its lease lasts."""
    shared = measured("claims", "--database", kind, "--processes", "4", "--operations", "600")

    assert (shared["twice"], shared["missed"]) == (0, 0)


@pytest.mark.slow
def test_without_a_lock_updates_are_lost(server):
    """LG-2, seed 001: without the row lock, a plain UPDATE loses attempts when ten processes fail at once."""
    tally = measured("unlocked", "--rounds", "3")

    assert tally["lost"] > 0
