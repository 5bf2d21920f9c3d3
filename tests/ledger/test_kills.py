"""Killing submitters and deliverers, and many processes on one ledger: short versions of `make ledger-full`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def measured(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=110,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_kills(kind, request):
    """LG-6, LG-9: kills leave no operation lost or stuck; only one being acknowledged may be delivered twice."""
    if kind == "postgres":
        request.getfixturevalue("server")

    verdict = measured("kills", "--database", kind, "--moments", "6")

    assert verdict["submitted"] > 0
    assert (verdict["lost"], verdict["unexplained"], verdict["stuck"]) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["asyncio", "threads"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_servers_with_an_inbox_are_killed(kind, api, request):
    """IB-1, IB-6: kills of a server in its handler and in COMMIT leave one effect of each delivered operation."""
    if kind == "postgres":
        request.getfixturevalue("server")

    tally = measured("inbox", "--database", kind, "--api", api, "--moments", "8")

    assert tally["repeated"] > 0
    assert (tally["twice"], tally["missing"], tally["stuck"]) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_order_survives_kills(kind, request):
    """LG-15: two deliverers are killed again and again, and the operations of each order key still arrive in order."""
    if kind == "postgres":
        request.getfixturevalue("server")

    verdict = measured("orders", "--database", kind, "--keys", "20", "--operations", "200", "--moments", "6")

    assert (verdict["kills"], verdict["out_of_order"], verdict["missed"]) == (6, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_share(kind, request):
    """LG-6: when several processes claim, every operation is claimed, and not again while its lease lasts."""
    if kind == "postgres":
        request.getfixturevalue("server")

    shared = measured("claims", "--database", kind, "--processes", "4", "--operations", "600")

    assert (shared["twice"], shared["missed"]) == (0, 0)


@pytest.mark.slow
def test_without_a_lock_updates_are_lost(server):
    """LG-2, seed 001: without the row lock, a plain UPDATE loses attempts when ten processes fail at once."""
    tally = measured("unlocked", "--rounds", "3")

    assert tally["lost"] > 0
