"""Runs the command line: in this process, in a process of its own, and on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import sys

from click.testing import CliRunner

from grpc_backoff.cli.commands import cli

LIMIT = 30.0
"""Seconds to wait for a command; much longer than any command takes."""
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\nfake line\x9b31m\u202eright to left\x7f\u2028[bold]"
"""What a server may say to control a terminal, or to forge a line."""


def invoke(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def check_refused(done, *words, status=2):
    """Check that a command wrote nothing but one line on standard error, with these words, and how it ended."""
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (status, "", 1), done.output
    assert [word for word in words if word not in done.stderr] == []


def check_harmless(shown):
    """Check that a terminal shows `HOSTILE` as plain text."""
    assert [sign for sign in ("\x1b]0;", "\x07", "\u202e") if sign in shown] == []
    assert r"\x1b]0;owned\x07" in shown
    assert "[bold]" in shown


@contextlib.asynccontextmanager
async def running(*arguments, **streams):
    """Run `connect` in its own process and kill it if it is still running when the test ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "grpc_backoff.cli", "connect", *map(str, arguments)),
        **{"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, **streams},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def finished(process, status=0):
    """Wait for the process to end with this status and without errors; return the lines of its standard output."""
    out, err = await asyncio.wait_for(process.communicate(), LIMIT)
    assert (process.returncode, err) == (status, b""), out
    return out.decode().splitlines()


async def connect(*arguments, status=0, **streams):
    """Run `connect` to its end, which is this status; return the lines of its output."""
    async with running(*arguments, **streams) as process:
        return await finished(process, status)


async def line_with(process, text):
    """Read standard output up to a line that contains this text and return all lines read."""
    lines = []
    while not lines or text not in lines[-1]:
        line = await asyncio.wait_for(process.stdout.readline(), LIMIT)
        assert line, f"{text!r} never came: {lines}"
        lines.append(line.decode().rstrip("\n"))
    return lines


async def on_terminal(*arguments, term="xterm"):
    """Run `connect` on a terminal until it fails; return what it shows. The cursor must be visible at the end."""
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    async with running(*arguments, **streams, env={**os.environ, "TERM": term}) as process:
        os.close(theirs)
        shown = await asyncio.to_thread(_read_all, ours)
        assert await asyncio.wait_for(process.wait(), LIMIT) == 1
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    return shown


def _read_all(descriptor):
    read = []
    with contextlib.suppress(OSError):  # Linux raises it when the other end is closed
        while block := os.read(descriptor, 65536):
            read.append(block)
    os.close(descriptor)
    return b"".join(read).decode()
