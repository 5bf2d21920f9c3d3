"""A real server in a process of its own, to be killed and frozen."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import psutil

from tests import programs


def free_port():
    """Return a TCP port on 127.0.0.1 that is free at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class ServerProcess:
    """The echo server as a process."""

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
        """SIGKILL: no goodbye, the kernel closes the sockets."""
        await programs.killed(self.process)

    async def freeze(self):
        """SIGSTOP: the kernel still accepts, nobody answers. It takes a moment to take hold of all threads."""
        self.process.send_signal(signal.SIGSTOP)
        while psutil.Process(self.process.pid).status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.005)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
