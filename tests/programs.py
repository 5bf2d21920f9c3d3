"""Starts programs from tests while grpc is running.

The event loop is not used for this. uvloop's forks run the handlers that grpc's core registers for forks, and a child
that hangs in one of them blocks its parent, the test run, for ever. `subprocess` starts programs without these
handlers.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys


async def start(*command, **how):
    """Start a program; `how` is passed on to `subprocess.Popen`."""
    return await asyncio.to_thread(subprocess.Popen, command, **how)


async def first_line(program, within=60):
    """Return the first line that a program writes, waiting at most `within` seconds."""
    return await asyncio.wait_for(asyncio.to_thread(program.stdout.readline), within)


async def killed(program):
    """Kill a program and wait until it has ended. Killing it twice does no harm."""
    program.kill()
    await asyncio.to_thread(program.wait)
    if program.stdout is not None:
        program.stdout.close()


async def output(*command, within):
    """Return a program's exit status and all of its output; kill it after `within` seconds."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": within, "check": False}
    done = await asyncio.to_thread(subprocess.run, command, **how)
    return done.returncode, done.stdout


def records(module, *arguments):
    """Run a module that prints one JSON object a line; return the objects."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=110)
    return [json.loads(line) for line in done.stdout.splitlines()]
