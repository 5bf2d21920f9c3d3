"""`python -m interop server`, `client` and `flaky` as processes: their output and their exit status."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys

import grpc
import pytest
import trustme
from click.testing import CliRunner

from grpc_backoff import aio
from grpc_judge.checkout import cli
from grpc_judge.generated.interop_v1.flaky_pb2 import GetTimelineRequest, PlayRequest
from grpc_judge.generated.interop_v1.flaky_pb2_grpc import FlakyServerStub
from grpc_judge.runner.process import free_port
from tests.echo import serving as serving_echo

LIMIT = 60.0
"""A time limit in seconds, far longer than any command here takes."""

COMPRESSED = ("--initial_backoff_ms", "250")


@contextlib.asynccontextmanager
async def running(*arguments, **environment):
    """Run a command and kill it if it is still running at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "interop", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def finished(process):
    """Return a process's exit status, standard output and standard error."""
    out, err = await asyncio.wait_for(process.communicate(), LIMIT)
    return process.returncode, out.decode(), err.decode()


async def client(*arguments, **environment):
    async with running("client", *arguments, **environment) as process:
        return await finished(process)


@contextlib.asynccontextmanager
async def serving(*arguments):
    """Run the server on free ports; yield its process and the client's flags for these ports."""
    async with running("server", "--control_port", 0, "--retry_port", 0, *COMPRESSED, *arguments) as process:
        control_port, retry_port = await ports_of(process, "control_port", "retry_port")
        yield process, ("--server_control_port", control_port, "--server_retry_port", retry_port)


async def ports_of(process, *names):
    """Return the ports from the first line that a server prints."""
    line = (await asyncio.wait_for(process.stdout.readline(), LIMIT)).decode()
    return re.fullmatch(" ".join(rf"{name}=(\d+)" for name in names) + "\n", line).groups()


async def test_both_in_compressed_time():
    """IO-1: a client that passes says so and exits with 0; the server prints the same gaps. Takes 4 s of real time."""
    for _ in range(3):  # on a busy machine, an attempt may be late
        async with serving() as (server, ports):
            maximum = ("--max_reconnect_backoff_ms", "1000")
            status, printed, errors = await client(*ports, *maximum, *COMPRESSED, "--seconds", "4")
            server.send_signal(signal.SIGTERM)
            seen = await finished(server)
        if status == 0:
            break
    assert (status, errors) == (0, "")
    assert printed.startswith("dialling 127.0.0.1:")
    assert printed.endswith("the server says: passed\n")
    assert re.search(r"^passed: \d attempts in 4\.\d s$", printed, re.MULTILINE)
    assert seen[::2] == (0, "")
    assert seen[1].splitlines()[:-1] == printed.splitlines()[1:-2]  # each states its own seconds in its last line


async def test_a_client_that_fails():
    """IO-1, IO-2: a client that fails exits with 1 and prints a line for each fault. Takes 3 s of real time.

    The client has the protocol's INITIAL_BACKOFF instead of the server's.
    """
    async with serving() as (server, ports):
        status, printed, errors = await client(*ports, "--seconds", "3")
        server.send_signal(signal.SIGTERM)
        _, seen, _ = await finished(server)
    assert (status, errors) == (1, "")
    assert printed.endswith("the server says: failed\n")
    assert re.search(r"^gap 1: .*, allowed 0.100 to 0.400, missed by \d\.\d{3} s$", seen, re.MULTILINE)
    assert re.search(r"^attempts: \d attempts, allowed at least 4, missed by ", seen, re.MULTILINE)
    assert seen.splitlines()[-1].startswith("failed: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_server_ends_when_told_to(number):
    """IO-1: SIGINT and SIGTERM end the server with status 0, without error output, and close its ports."""
    async with serving() as (server, ports):
        server.send_signal(number)
        assert await finished(server) == (0, "", "")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(ports[1]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_client_ends_when_told_to(number):
    """IO-1: on SIGINT or SIGTERM, the client calls Stop, which ends its turn, and exits with status 1."""
    async with serving() as (server, ports), running("client", *ports) as process:
        assert await asyncio.wait_for(process.stdout.readline(), LIMIT)
        process.send_signal(number)
        assert await finished(process) == (1, "", "Aborted!\n")
        printed = b""
        while b"\nfailed: " not in printed:
            printed += await asyncio.wait_for(server.stdout.readline(), LIMIT)
    assert b"attempts: 1 attempt," in printed or b"attempts: 0 attempts" in printed


async def test_a_retry_port_that_answers(tmp_path):
    """IO-1: the client reports a retry port that answers calls instead of hanging up."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert = authority.issue_cert("127.0.0.1")
    key = cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()
    async with serving() as (_, ports), serving_echo(credentials=grpc.ssl_server_credentials([key])) as answers:
        roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(tmp_path / "ca.pem")}
        status, _, errors = await client(*ports[:3], answers, **roots)
    assert status == 1
    assert (
        errors == f"Error: 127.0.0.1:{answers}, the retry port, should hang up; a call to it ended with UNIMPLEMENTED\n"
    )


async def test_nobody_on_the_control_port():
    """IO-1: if nothing listens on the control port, the client prints one line and exits with status 1."""
    port = free_port()
    status, printed, errors = await client("--server_control_port", port, "--server_retry_port", free_port())
    assert (status, printed) == (1, "")
    assert errors.startswith(f"Error: Start on 127.0.0.1:{port}: UNAVAILABLE: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("flag", ["--control_port", "--retry_port"])
async def test_a_port_that_is_taken(flag):
    """IO-1: a port that is in use produces a one-line error that names the port, and exit status 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--control_port": 0, "--retry_port": 0, flag: port}
        async with running("server", *(word for pair in ports.items() for word in pair)) as process:
            status, printed, errors = await finished(process)
    assert (status, printed) == (1, "")
    assert errors.startswith("Error: ")
    assert str(port) in errors
    assert errors.count("\n") == 1


@contextlib.asynccontextmanager
async def flaky(*arguments):
    """Run the flaky server on free ports; yield its process and the targets of its two ports."""
    async with running("flaky", "--port", 0, "--control_port", 0, *arguments) as process:
        ports = await ports_of(process, "port", "control_port")
        yield process, *(f"127.0.0.1:{port}" for port in ports)


async def answer(channel):
    return await channel.unary_unary("/any.Service/Method")(b"hello", wait_for_ready=True, timeout=LIMIT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_flaky_plays_a_script(number, tmp_path):
    """IO-3: `flaky` plays a script from a file, accepts commands on its control port, and exits with 0 on a signal."""
    (tmp_path / "script").write_text('[{"behaviour": "accept_close", "times": 2}, "working"]')
    async with (
        flaky("--script", tmp_path / "script") as (process, target, control),
        grpc.aio.insecure_channel(control) as channel,
    ):
        server = FlakyServerStub(channel)
        async with aio.insecure_channel(target, [("grpc.initial_reconnect_backoff_ms", 50)]) as client:
            assert await answer(client) == b"hello"
        await server.Play(PlayRequest(script='"accept_reset"'))
        with pytest.raises(ConnectionError):
            await hang_up_of(target)
        timeline = (await server.GetTimeline(GetTimelineRequest())).timeline
        assert [visit.behaviour for visit in timeline.visits] == [*["accept_close"] * 2, "working", "accept_reset"]
        process.send_signal(number)
        assert await finished(process) == (0, "", "")


async def hang_up_of(target):
    """Connect and wait until the server hangs up; raise ConnectionError if it resets the connection."""
    reader, writer = await asyncio.open_connection(*target.split(":"))
    with contextlib.closing(writer):
        await asyncio.wait_for(reader.read(), LIMIT)


async def test_flaky_with_tls(tmp_path):
    """IO-3: `flaky` serves TLS with a given certificate and key."""
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    files = "--cert", tmp_path / "cert.pem", "--key", tmp_path / "key.pem"
    async with flaky(*files) as (_, target, _), grpc.aio.secure_channel(target, credentials) as channel:
        assert await answer(channel) == b"hello"


# Tests of the command line alone: nothing is opened, so they need no process.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["server", "--control_port", "1"], ["--retry_port"]),
        (["server", "--control_port", "x", "--retry_port", "1"], ["--control_port", "'x'"]),
        (["server", "--control_port", "65536", "--retry_port", "1"], ["--control_port", "65536", "0<=x<=65535"]),
        (["client", "--server_control_port", "1"], ["--server_retry_port"]),
        (
            ["client", "--server_control_port", "1", "--server_retry_port", "2", "--seconds", "0"],
            ["--seconds", "x>0"],
        ),
        (["judge"], ["judge"]),
        (["flaky", "--port", "0"], ["--control_port"]),
        (["flaky", "--port", "0", "--control_port", "0", "--script", "/no/such/file"], ["--script", "/no/such/file"]),
        (["flaky", "--port", "0", "--control_port", "0", "--cert", __file__], ["--cert and --key go together"]),
    ],
)
def test_bad_arguments(arguments, words):
    """IO-1: the error for a bad argument names it, and the exit status is 2."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    for word in words:
        assert word in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["server", "--control_port", "0", "--retry_port", "0", "--initial_backoff_ms", "100"],
        ["client", "--server_control_port", "1", "--server_retry_port", "2", "--max_reconnect_backoff_ms", "100"],
        ["client", "--server-control-port", "1", "--server-retry-port", "2", "--max-reconnect-backoff-ms", "100"],
    ],
)
def test_backoffs_that_cannot_be_judged(arguments):
    """IO-1, IO-2: a backoff that is too short to be judged produces a one-line error; flags may have hyphens."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert "cannot be judged" in result.output
    assert result.output.count("\n") == 1


def test_a_script_that_cannot_be_played(tmp_path):
    """IO-3: an invalid script produces a one-line error that says what was expected."""
    (tmp_path / "script").write_text('"accept_closed"')
    arguments = ["flaky", "--port", "0", "--control_port", "0", "--script", str(tmp_path / "script")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert "behaviour='accept_closed': expected" in result.output
    assert result.output.count("\n") == 1


def test_help():
    """IO-1, IO-4: the help lists every command, and each command's help lists its flags in the official spelling."""
    for command, flags in {
        "server": ["--control_port", "--retry_port"],
        "run": ["--peers", "--rules", "--full", "--json", "--report"],
        "flaky": ["--port", "--control_port", "--script", "slow_settings"],
        "client": ["--server_control_port", "--server_retry_port", "--server_host", "--max_reconnect_backoff_ms"],
    }.items():
        assert f"\n  {command} " in CliRunner().invoke(cli, ["--help"]).output
        shown = CliRunner().invoke(cli, [command, "-h"]).output
        assert [flag for flag in flags if flag not in shown] == [], shown
