"""A real server in its own process, which tests can kill and freeze."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import psutil

from tests import programs


class ServerProcess:
    """The echo server in its own process."""

    def __init__(self, port):
        self.port = port
        self.process = None

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.kill()

    async def start(self):
        await self._start("-m", "tests.echo", str(self.port))

    async def _start(self, *program):
        self.process = await programs.start(sys.executable, *program, stdout=subprocess.PIPE)
        await programs.first_line(self.process)

    async def kill(self):
        """Kill the server with SIGKILL, so that the kernel closes its sockets without a GOAWAY."""
        await programs.killed(self.process)

    async def freeze(self):
        """Stop the server with SIGSTOP: the kernel still accepts connections, but nothing answers.

        Waits until all threads have stopped, which takes a moment.
        """
        self.process.send_signal(signal.SIGSTOP)
        while psutil.Process(self.process.pid).status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.005)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
