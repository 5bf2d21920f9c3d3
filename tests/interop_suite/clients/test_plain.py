"""Programs that know nothing of the judge: how they are started, what is asked of them, and when they have failed."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from grpc_judge.clients import plain
from grpc_judge.clients.peer import Setting
from grpc_judge.clients.plain import plain_peer
from grpc_judge.conformance import Outcome
from grpc_judge.matrix.run import choose_clauses, run_all
from grpc_judge.matrix.view import MatrixView

CLIENT = """
import sys, time, grpc
target, seconds, *settings = sys.argv[1:]
names = ["grpc.initial_reconnect_backoff_ms", "grpc.max_reconnect_backoff_ms", "grpc.min_reconnect_backoff_ms"]
channel = grpc.insecure_channel(target, [*zip(names, map(int, settings))])
over = time.monotonic() + float(seconds)
while time.monotonic() < over:
    try:
        channel.unary_unary("/any.Service/Method")(b"")
    except grpc.RpcError:
        print("failed " * 20_000)  # far more than a line
    time.sleep(0.02)
"""
README = Path(__file__).parents[3] / "interop" / "README.md"
TOLD = ("{initial_ms}", "{max_ms}", "{min_connect_timeout_ms}")


def python(program, told=()):
    return plain_peer("it", [sys.executable, "-c", program, "{target}", "{seconds}"], told=told)


async def verdicts(peer, *names):
    results = await run_all([peer], choose_clauses(names), MatrixView(Console(file=io.StringIO(), width=200)))
    return {verdict.clause: verdict for verdict in results.peers[0].verdicts}


async def test_twenty_lines_are_judged():
    """IO-4: a program that only makes calls is judged by what the server sees. Takes three seconds."""
    found = await verdicts(python(CLIENT, TOLD), "waits-for-settings", "start-to-start", "one-connection")
    assert {name: verdict.outcome for name, verdict in found.items()} == dict.fromkeys(found, Outcome.PASS)


async def test_what_only_the_client_could_say_is_not_asked():
    """IO-4: clauses about the calls of a client that reports nothing do not apply to it. Takes ten seconds.

    The client is the program on the distribution's page.
    """
    asked = ("first-attempt", "rolling-restart", "refused-is-repeated", "lost-is-replaced")
    program, _ = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    arguments = ["--target", "{target}", "--seconds", "{seconds}"]
    found = await verdicts(plain_peer("it", [sys.executable, "-c", program, *arguments]), *asked)
    outcomes = {name: verdict.outcome for name, verdict in found.items()}
    assert outcomes == {**dict.fromkeys(asked, Outcome.NOT_APPLICABLE), "lost-is-replaced": Outcome.PASS}
    said = str(found["first-attempt"])
    assert re.match(r"it dialled \d+\.\d\d s after its start; allowed is 0\.5 s after its first call", said)
    assert 0 < float(said.split()[2]) < 30


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit('no such module')", "it ended with status 1: no such module"),
        ("import time; time.sleep(60)", "it did not connect within 0.5 s"),
        (f"{CLIENT.partition('over =')[0]}grpc.channel_ready_future(channel).result(9)", "it ended with status 0"),
    ],
)
async def test_a_program_that_does_not_keep_to_it_has_failed(monkeypatch, program, reason):
    """IO-4: a program that ends too soon, or does not connect, fails the clauses that it was to be judged by."""
    monkeypatch.setattr(plain, "_STARTUP", 0.5 if "sleep(60)" in program else 30.0)
    verdict = (await verdicts(python(program, TOLD), "waits-for-settings"))["waits-for-settings"]
    assert (verdict.outcome, str(verdict)) == (Outcome.FAIL, reason)


async def test_a_program_that_is_not_there():
    """IO-4: a command that cannot be run fails with the system's reason."""
    verdict = (await verdicts(plain_peer("it", ["/no/such/program", "{target}"]), "limit"))["limit"]
    assert str(verdict).startswith("it cannot be run: ")


async def test_tls_is_not_asked_of_a_program_without_it():
    """IO-4: scenarios with TLS need the arguments that turn it on."""
    verdict = (await verdicts(python(CLIENT), "tls-limit"))["tls-limit"]
    assert verdict.outcome is Outcome.NOT_APPLICABLE
    assert "--tls-args" in str(verdict)


def test_the_command_line():
    """IO-4: values replace their places, and the arguments for TLS and backoff are added only where they apply."""
    peer = plain_peer("it", ["run", "--to={target}"], told=("-i{initial_ms}", "-m{max_ms}"), secured=("-c", "{ca}"))
    settings = {Setting.INITIAL: 200, Setting.MAX: 1600}
    assert peer.filled_for("h:1", 5, {}, None) == ["run", "--to=h:1"]
    assert peer.filled_for("h:1", 5, settings, Path("ca.pem")) == ["run", "--to=h:1", "-i200", "-m1600", "-c", "ca.pem"]
    assert peer.can_be_told(*settings)
    assert not peer.can_be_told(Setting.MIN_CONNECT_TIMEOUT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"command": ["run"]}, "COMMAND=run: expected {target} in it"),
        ({"command": ["run", "{target}"], "secured": ["--tls"]}, "--tls-args=--tls: expected {ca} in it"),
        (
            {"command": ["run", "{target}"], "told": ["{initial_ms}"]},
            "--backoff-args={initial_ms}: expected {initial_ms} and {max_ms} in it",
        ),
    ],
)
def test_a_value_without_a_place(given, message):
    """IO-4: arguments without a place for the value that they need are an error."""
    with pytest.raises(ValueError, match="expected") as caught:
        plain_peer("it", **given)
    assert str(caught.value) == message
