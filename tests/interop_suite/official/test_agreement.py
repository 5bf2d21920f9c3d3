"""Comparing two verdicts on one test: the other program agrees with ours, disagrees, or gives no verdict."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from grpc_judge.official.agreement import Agreement, show_agreement
from grpc_judge.official.programs import CLIENTS, SERVER, be_judged, judge_client
from grpc_judge.official.verdict import judge, terms_for
from grpc_judge.runner.program import Program

PASSED = judge([1.0, 1.6], attempts=3, seconds=4, terms=terms_for())
FAILED = judge([1.0, 1.0], attempts=3, seconds=4, terms=terms_for())


def program(*command):
    return Program(name="stand-in", folder=Path(__file__).parent, command=("{python}", *command))


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed", "passed"),
    [
        (PASSED, True, True, True),
        (FAILED, False, True, False),
        (PASSED, False, False, False),
        (FAILED, True, False, False),
        (None, True, False, False),
        (PASSED, None, False, False),
        (None, None, False, False),
    ],
)
def test_both_have_to_say_the_same(ours, theirs, agreed, passed):
    """IO-1: a client passes only if both sides say so; a missing verdict never counts as agreement."""
    agreement = Agreement(title="x", ours=ours, theirs=theirs)
    assert (agreement.agreed, agreement.passed) == (agreed, passed)


def test_both_verdicts_are_shown():
    """IO-1: the output shows the gaps, each side's verdict, and the other side's reason."""
    file = io.StringIO()
    show_agreement(Agreement(title="one", ours=PASSED, theirs=False, why="no [luck]"), Console(file=file, width=100))
    shown = file.getvalue()
    assert "1.600" in shown
    assert "passed: 3 attempts in 4.0 s" in shown
    assert "the other side says: failed: no [luck]" in shown
    assert "they do not agree" in shown


async def test_a_client_that_passes():
    """IO-1: a client's exit status is its verdict. Our own client stands in for the official one. Takes 5 s."""
    agreement = await judge_client(program("-m", "interop", "client", "--seconds", "4"))
    assert agreement.passed, agreement.why
    assert agreement.ours is not None
    assert len(agreement.ours.gaps) in (2, 3)


async def test_a_client_that_fails():
    """IO-1: a client whose gaps of 0.4 s are too short fails on both sides. Takes 3 s of real time."""
    client = program("-m", "interop", "client", "--seconds", "2", "--initial_backoff_ms", "400")
    agreement = await judge_client(client)
    assert agreement.agreed, agreement.why
    assert not agreement.passed


async def test_a_client_that_never_asks():
    """IO-1: our server gives no verdict on a client that never calls Start, even if the client exits with status 0."""
    agreement = await judge_client(program("-c", "print('nothing to do')"))
    assert agreement == Agreement(title="stand-in", ours=None, theirs=True, why="nothing to do")


async def test_a_client_that_does_not_end():
    """IO-1: a client that does not end is killed, and neither side gives a verdict."""
    agreement = await judge_client(program("-c", "import time; time.sleep(60)"), patience=0.5)
    assert agreement == Agreement(title="stand-in", ours=None, theirs=None)


async def test_before_another_server():
    """IO-1: our client passes when another server, here a copy of ours, judges it. Takes 5 s of real time."""
    for _ in range(3):  # on a busy machine, a connection may be accepted so late that the gap after it is too short
        agreement = await be_judged(program("-m", "interop", "server"), seconds=4)
        if agreement.passed:
            break
    assert agreement.passed, agreement.why
    assert agreement.title == "grpc_backoff, before stand-in"


async def test_before_a_server_that_is_none():
    """IO-1: a server that accepts connections but does not implement the test gives no verdict."""
    code = (
        "import socket, sys; port = int(sys.argv[1].partition('=')[2]);"
        "server = socket.create_server(('127.0.0.1', port));"
        "[server.accept()[0].close() for _ in range(1000)]"
    )
    agreement = await be_judged(program("-c", code), seconds=1)
    assert (agreement.ours, agreement.theirs) == (None, None)
    assert "Start" in agreement.why


@pytest.mark.parametrize("peer", [*CLIENTS, SERVER], ids=lambda peer: peer.name)
def test_official_programs_can_be_built(peer):
    """IO-1: the folder of each official program contains everything needed to build that program."""
    assert peer.programs
    assert any((peer.folder / name).exists() for name in ("pom.xml", "build.sh"))
