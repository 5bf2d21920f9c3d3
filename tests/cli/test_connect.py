"""`grpc-backoff connect` with real sockets, in a separate process where output or signals matter."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import time

import grpc
import pytest
import trustme

from grpc_backoff import aio
from grpc_backoff.cli.channel_report import ChannelReport
from grpc_backoff.cli.connect import Watch
from grpc_backoff.cli.interrupt import interruptible
from grpc_backoff.cli.view import open_view
from grpc_backoff.config.proxies import PROXY_VARIABLES
from grpc_backoff.testing.front import FlakyFront, http1_answer, settings_then_close, silent
from tests.cli.running import LIMIT, check_refused, connect, finished, invoke, line_with, on_terminal, running
from tests.echo import serving

FAST = ("--option", "grpc.initial_reconnect_backoff_ms=100", "--option", "grpc.max_reconnect_backoff_ms=300")


async def test_refused_until_the_server_appears():
    """CH-11: each failed attempt prints its error and the wait for the next; READY follows once the server is up."""
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        await front.refuse()
        async with running(front.target, "--once", *FAST) as process:
            refused = await line_with(process, "#2 ")
            await front.listen()
            lines = await finished(process)
    assert all("tcp: " in line and "Connection refused; next in 0." in line for line in refused)
    assert "gap 0." in refused[1]
    assert any("READY after" in line for line in lines)
    assert lines[-1].startswith("READY after")
    assert "1 connection; last error: tcp: " in lines[-1]


async def test_json_lines_parse():
    """CH-11: `--json` writes one object per line for each event, the diagnosis and the summary."""
    async with FlakyFront(http1_answer) as front:
        lines = await connect(front.target, "--json", "--attempts", "3", *FAST, status=1)
    objects = [json.loads(line) for line in lines]
    diagnosis = objects.pop(-2)
    assert (diagnosis["event"], diagnosis["meaning"]) == ("diagnosis", "This is an HTTP/1 server.")
    assert [each["event"] for each in objects] == ["started", "failed"] * 3 + ["summary"]
    assert [each["number"] for each in objects[:-1]] == [1, 1, 2, 2, 3, 3]
    starts = [each["start"] for each in objects if each["event"] == "started"]
    gaps = [each["gap"] for each in objects if each["event"] == "started"]
    assert gaps[0] is None
    assert gaps[1:] == pytest.approx([starts[1] - starts[0], starts[2] - starts[1]], abs=1e-5)
    assert gaps[1] >= 0.099  # CB-2; the starts are rounded
    for each in objects[1:-1:2]:
        assert each["stage"] == "settings"
        assert "http1.x" in each["error"]
        assert each["next_in"] >= 0  # 0 if the machine is so slow that the next start is already due
    assert objects[-1]["attempts"] == 3
    assert objects[-1]["connections"] == 0


async def test_what_a_failure_means():
    """CH-11: a failed `connect` explains its last error, gives advice and recommends `--probe`."""
    lines = await connect("127.0.0.1:1", "--attempts", "1", *FAST, status=1)
    assert lines[1] == "Nothing is listening at this address."
    assert lines[2].startswith("-> Check that the server is running")
    assert lines[2].endswith("Run connect --probe to see how far an attempt gets.")
    assert lines[3].startswith("stopped after")


async def test_the_port_that_nobody_named():
    """CH-4: if the target names no port, a line printed before the first attempt says that port 443 is dialled."""
    for arguments in (("localhost", "--attempts", "2", *FAST), ("localhost", "--probe")):
        lines = await connect(*arguments, status=1)
        assert [number for number, line in enumerate(lines) if "specifies no port; dialling 443" in line] == [0]


@pytest.mark.parametrize(
    ("variable", "option"), [("http_proxy", None), ("grpc_proxy", None), (None, "grpc.http_proxy")]
)
async def test_the_proxy_that_nobody_named(monkeypatch, variable, option):
    """CH-11: if the environment or an option names an HTTP proxy, a line says so, because the errors are about it."""
    for name in (*PROXY_VARIABLES, "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    named = ("--option", f"{option}=http://127.0.0.1:1") if option else ()
    lines = await connect("shop.example.com:50051", "--attempts", "1", *named, *FAST, status=1)
    assert lines[0] == f"{option or variable} is set: connecting through that HTTP proxy"
    if variable is not None:
        lines = await connect("localhost:1", "--attempts", "1", "--option", "grpc.http_proxy=5", *FAST, status=1)
        assert lines[0] == f"{variable} is set: connecting through that HTTP proxy", "the core skips a number"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    lines = await connect("127.0.0.1:1", "--attempts", "1", *FAST, status=1)
    assert not any("HTTP proxy" in line for line in lines)


async def test_attempts_stops_before_the_next_one():
    """`--attempts N` makes N attempts, even if the next one would follow without a pause (CB-4)."""
    async with FlakyFront(silent) as front:
        arguments = ("--attempts", "2", *FAST, "--option", "grpc.min_reconnect_backoff_ms=400")
        lines = await connect(front.target, *arguments, status=1)
        assert len(front.visits) == 2
    assert lines[0].endswith("next in 0.000 s")
    assert "no SETTINGS frame within the attempt's time limit" in lines[0]


async def test_lost_connections_are_replaced():
    """CB-7: a lost connection is reported and replaced without a call, at most once per initial backoff."""
    async with FlakyFront(settings_then_close()) as front:
        lines = await connect(front.target, "--json", "--attempts", "4", *FAST)
    starts = [each["start"] for each in map(json.loads, lines) if each["event"] == "started"]
    events = [json.loads(line)["event"] for line in lines]
    assert events[:4] == ["started", "connected", "disconnected", "started"]
    assert all(later - sooner >= 0.099 for sooner, later in itertools.pairwise(starts))


@contextlib.asynccontextmanager
async def one_of_two_serves():
    """Yield the target of a server and a closed port, the server's address and the other one."""
    async with serving() as port, FlakyFront() as front:
        await front.refuse()
        good = f"127.0.0.1:{port}"
        yield f"ipv4:{good},{front.target}", good, front.target


ROUND_ROBIN = ("--option", "grpc.lb_policy_name=round_robin")


async def test_several_connections_are_rows():
    """PO-11: of two servers, one of them bad, each attempt is shown with its address, and each connection is a row."""
    async with one_of_two_serves() as (target, good, bad):
        lines = await connect(target, "--attempts", "4", *FAST, *ROUND_ROBIN)
    attempts, (heading, first, second, totals) = lines[:4], lines[4:]
    assert [" READY after" in line for line in attempts if f" {good} " in line] == [True]
    assert [" tcp: " in line for line in attempts if f" {bad} " in line] == [True] * 3
    assert heading.split() == ["endpoint", "role", "state", "calls", "since", "last", "error"]
    assert first.split()[:4] == [good, "serving", "READY", "0"]
    assert second.split()[:3] == [bad, "coming", "TRANSIENT_FAILURE"]
    assert "Connection refused" in second
    assert totals.startswith("stopped after")


async def test_several_connections_as_json():
    """PO-11: `--json` tells the connections whenever one changes, and the last ones in the summary."""
    async with one_of_two_serves() as (target, good, bad):
        lines = await connect(target, "--json", "--attempts", "4", *FAST, *ROUND_ROBIN)
    objects = [json.loads(line) for line in lines]
    told = [each["slots"] for each in objects if "slots" in each]
    assert len(told) >= 2
    assert all([slot["endpoint"] for slot in slots] == [good, bad] for slots in told)
    served, refused = told[-1]
    assert (served["role"], served["state"], served["error"]) == ("serving", "READY", None)
    assert (refused["role"], refused["stage"]) == ("coming", "tcp")
    assert objects[-1]["event"] == "summary"
    assert objects[-1]["slots"] == told[-1]
    ends = [each for each in objects if each["event"] in ("connected", "failed")]
    assert all((each["endpoint"] == good) == (each["event"] == "connected") for each in ends)


async def test_timeout_without_ready_is_status_1():
    """`--timeout` ends the command, with status 1 if the channel was never READY."""
    async with FlakyFront(silent) as front:
        lines = await connect(front.target, "--timeout", "0.5", status=1)
    assert lines[-1].startswith("timed out after ")
    assert any(line.startswith("The attempt has not ended yet") for line in lines)


async def test_the_time_to_import_does_not_count():
    """The time that a command ran counts from when it began to connect, not from before grpc was imported."""

    def opened(_listener):
        time.sleep(1.5)  # as long as an import
        return aio.insecure_channel("127.0.0.1:1")

    with contextlib.closing(open_view(as_json=True)) as view:
        watch = Watch(ChannelReport(view), attempts=None, limit=0.1, once=False)
        with interruptible():
            await watch.follow(opened)

    assert watch.ended == "timed out"
    assert 0.1 <= watch.seconds < 1.5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupt_ends_with_a_summary(number):
    """CB-10: Ctrl-C and SIGTERM end a command that watches a READY connection, and it prints a summary."""
    async with serving() as port, running(f"127.0.0.1:{port}") as process:
        await line_with(process, "READY after")
        process.send_signal(number)
        lines = await finished(process)
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
    assert lines[-1].startswith(f"{word} after ")
    assert lines[-1].endswith("1 attempt, 1 connection")


@pytest.mark.parametrize("gap", [0, 1, 2, 4, 8, 16, 32])
async def test_a_second_interrupt_while_the_command_ends(gap):
    """CB-10: a second Ctrl-C, some milliseconds after the first, prints no traceback; `timeout` sends each twice."""
    for _ in range(3):
        async with running("127.0.0.1:1") as process:
            await line_with(process, "#1 ")
            process.send_signal(signal.SIGINT)
            await asyncio.sleep(gap / 1000)
            with contextlib.suppress(ProcessLookupError):  # it has ended
                process.send_signal(signal.SIGINT)
            errors = await process.stderr.read()
        assert errors.replace(b"Aborted!", b"").strip() == b""


async def test_interrupt_while_asleep():
    """CB-10: Ctrl-C between two attempts ends the command at once, with status 1."""
    async with FlakyFront() as front:
        await front.refuse()
        async with running(front.target, "--option", "grpc.initial_reconnect_backoff_ms=60000") as process:
            await line_with(process, "#1 ")
            process.send_signal(signal.SIGINT)
            lines = await finished(process, status=1)
    assert lines[-1].startswith("interrupted after ")
    assert "1 attempt, 0 connections; last error: tcp: " in lines[-1]


@contextlib.asynccontextmanager
async def serving_tls(authority):
    cert = authority.issue_cert("localhost", "127.0.0.1")
    chain = b"".join(pem.bytes() for pem in cert.cert_chain_pems)
    credentials = grpc.ssl_server_credentials(
        [(cert.private_key_pem.bytes(), chain)],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    async with serving(credentials=credentials) as port:
        yield f"127.0.0.1:{port}"


async def test_tls_with_client_certificate(tmp_path):
    """CH-8: `--ca`, `--cert` and `--key` imply `--tls`; together they enable mutual TLS."""
    authority = trustme.CA()
    client = authority.issue_cert("client.example")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    files = ("--ca", tmp_path / "ca.pem", "--cert", tmp_path / "client.pem", "--key", tmp_path / "client.pem")
    async with serving_tls(authority) as target:
        lines = await connect(target, "--once", *files)
    assert lines[-1].startswith("READY after")


async def test_tls_with_the_wrong_authority(tmp_path):
    """CH-11: a certificate from another authority fails at stage `tls`, and the line says why."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    async with serving_tls(trustme.CA()) as target:
        lines = await connect(target, "--attempts", "1", "--ca", tmp_path / "ca.pem", status=1)
    assert " tls: " in lines[0]
    assert "CERTIFICATE_VERIFY_FAILED" in lines[0]


async def test_control_characters_are_escaped():
    """Control characters in an address are escaped, even if they appear in the core's message."""
    lines = await connect("bad\x1b]0;owned\x07host.invalid:1", "--attempts", "1", status=1)
    assert r"bad\x1b]0;owned\x07host.invalid" in lines[0]
    assert " resolve: " in lines[0]
    assert all(line.isprintable() for line in lines)


async def test_terminal_gets_a_live_table():
    """On a terminal, the command shows a table and a countdown, and restores the cursor at the end."""
    async with FlakyFront() as front:
        await front.refuse()
        wait = ("--option", "grpc.initial_reconnect_backoff_ms=500")
        shown = await on_terminal(front.target, "--attempts", "2", *wait)
    assert "outcome" in shown
    assert "next attempt in 0." in shown
    assert "2 attempts, 0 connections" in shown


# Arguments of the command line. These tests dial nothing, or fail at once, and need no separate process.

PEER = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--option", "grpc_backoff.multiplyer=2"], ["grpc_backoff.multiplyer", "grpc_backoff.multiplier"]),
        (["--option", "grpc_backoff.jitter=1.5"], ["grpc_backoff.jitter=1.5: expected a number between 0 (inclusive)"]),
        (["--option", "grpc_backoff.jitter=nan"], ["grpc_backoff.jitter", "nan"]),
        (["--option", "grpc.initial_reconnect_backoff_ms=0.5"], ["grpc.initial_reconnect_backoff_ms", "0.5"]),
        (["--option", "grpc.keepalive_time_ms=99999999999999999999"], ["grpc.keepalive_time_ms", "32 bits"]),
        # It overrides the command's own value (CH-9), so an invalid one is refused.
        (["--option", "grpc_backoff.reconnect=sometimes"], ["'sometimes'", "'lazy'"]),
        (["--probe", "--once"], ["--probe makes only one attempt", "--once"]),
        (["--probe", "--attempts", "3"], ["--probe makes only one attempt", "--attempts"]),
        (["--probe", "--option", "grpc_backoff.jitter=0"], ["--probe", "grpc_backoff.jitter"]),
        (["--probe", "--timeout", "inf"], ["--timeout", "inf"]),
        (["--probe", "--timeout", "nan"], ["--timeout", "nan"]),
        *(
            ([*probe, *files], words)
            for probe in ([], ["--probe"])
            for files, words in (
                (["--ca", "/no/such/file"], ["--ca", "/no/such/file", "No such file"]),
                (["--cert", "/no/such/file"], ["--cert and --key must be given together"]),
                (["--ca", __file__], ["--ca", "expected a PEM file"]),
            )
        ),
    ],
)
def test_bad_arguments_are_one_line(arguments, words):
    """CH-10: a bad argument produces a one-line error that names it, and exit status 2."""
    check_refused(invoke("connect", PEER, *arguments), *words)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("xds:///orders", ["'xds:///orders'", ": expected host[:port]"]),
        ("127.0.0.1:99999", ["127.0.0.1:99999", "1 to 65535"]),
    ],
)
def test_a_target_that_cannot_be_probed(target, words):
    """CH-10: so does a target that `--probe` cannot dial."""
    check_refused(invoke("connect", "--probe", target), *words)


@pytest.mark.parametrize("target", ["", " ", "dns:///", "unix:"])
@pytest.mark.parametrize("probe", [[], ["--probe"]])
def test_a_target_that_names_nothing(target, probe):
    """CH-10: so does a target without a host, which the command would dial without end."""
    check_refused(invoke("connect", target, "--timeout", "1", *probe), f"target={target!r}: expected ")


@pytest.mark.parametrize("probe", [[], ["--probe"]])
def test_a_target_that_is_a_url(probe):
    """CH-10: so does a URL; for TLS, the line names the option of the command."""
    check_refused(invoke("connect", "https://127.0.0.1:1", *probe), "without a URL scheme, and --tls; did you mean")


def test_a_file_that_cannot_be_used(monkeypatch):
    """CH-10: so does a file that the environment names, and the line names no option."""
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", "/no/such/file")
    result = invoke("connect", PEER, "--attempts", "1")
    check_refused(result, "GRPC_BACKOFF_CONFIG")
    assert "--option" not in result.output


@pytest.mark.parametrize(
    ("arguments", "content", "words"),
    [
        (["--option", "grpc.initial_reconnect_backof_ms=5"], "", "did you mean 'grpc.initial_reconnect_backoff_ms'?"),
        ([], '[methods."a.B"]\nretry = 2\nbackoff = "linear"\n', 'methods."a.B".backoff has no effect without a delay'),
    ],
)
def test_a_warning_is_one_line(monkeypatch, tmp_path, arguments, content, words):
    """CH-9, BP-2: a warning about an option or a file is one line on standard error, without a place in the code."""
    file = tmp_path / "backoff.toml"
    file.write_text(content)
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))
    result = invoke("connect", PEER, "--attempts", "1", *arguments)
    assert "1 attempt, 0 connections" in result.stdout
    assert result.stderr.startswith("Warning: ")
    assert result.stderr.endswith(f"{words}\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["nothing", "=1", "\x1b[2J"])
def test_option_without_key_and_value(option):
    """An option that is not KEY=VALUE is a usage error, and the message escapes it."""
    result = invoke("connect", PEER, "--option", option)
    assert result.exit_code == 2
    assert ": expected KEY=VALUE" in result.output
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("5.0", 5.0),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("eager", "eager"),
        ("1_0x", "1_0x"),
        ("", ""),
    ],
)
def test_option_values_are_read_as_what_they_look_like(text, value):
    """CH-9: the value of an option becomes an int, a float, a bool or a str, depending on how it is written."""
    from grpc_backoff.cli.connect import read_option

    [(key, read)] = read_option(None, None, [f"key={text}"])
    assert key == "key"
    assert read == value
    assert type(read) is type(value)


def test_a_command_in_process_leaves_nothing():
    """CB-10: when run in this process, the command closes its channel and its event loop."""
    began = time.monotonic()
    result = invoke("connect", PEER, "--attempts", "1")
    assert result.exit_code == 1
    assert "1 attempt, 0 connections" in result.output
    assert time.monotonic() - began < LIMIT
