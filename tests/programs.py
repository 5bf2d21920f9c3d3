"""Programs that tests start beside a grpc that runs.

Not by the event loop: uvloop's forks go through the handlers that grpc's core has for forks, and a child that hangs in
one of them holds up its parent, the test run, without an end. `subprocess` starts programs without these handlers.
"""

from __future__ import annotations

import asyncio
import subprocess


async def start(*command, **how):
    """Start a program; `how` is what `subprocess.Popen` takes."""
    return await asyncio.to_thread(subprocess.Popen, command, **how)


async def first_line(program, within=60):
    """Return the first line that a program writes, after `within` seconds at the latest."""
    return await asyncio.wait_for(asyncio.to_thread(program.stdout.readline), within)


async def killed(program):
    """Kill a program, and return once it has ended. Twice does no harm."""
    program.kill()
    await asyncio.to_thread(program.wait)
    if program.stdout is not None:
        program.stdout.close()


async def output(*command, within):
    """Return the exit status of a program, and all that it says; it is killed after `within` seconds."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": within, "check": False}
    done = await asyncio.to_thread(subprocess.run, command, **how)
    return done.returncode, done.stdout
