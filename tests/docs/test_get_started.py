"""The get-started page: its files and commands, in the page's order."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading

import pytest

from grpc_backoff.testing.port import Port
from tests.docs.pages import ADDRESS, block


@pytest.fixture
def start(shop, tmp_path):
    """Return a function that starts one of the page's programs on another port and returns process and output."""
    running = []

    def run(program, port):
        file = tmp_path / program
        file.write_text((shop / program).read_text().replace(ADDRESS, f"localhost:{port}"))
        process = subprocess.Popen(
            [sys.executable, "-u", file],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(shop), *sys.path])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = queue.Queue()
        reader = threading.Thread(target=lambda: [lines.put(line.rstrip()) for line in process.stdout])
        reader.start()
        running.append((process, reader))
        return process, lines

    yield run
    for process, reader in running:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


async def free_port():
    port = Port("127.0.0.1", 0, lambda sock: sock.close())
    port.close()
    return port.number


def form(line):
    """Return a line without times, ports and the IP version, which differ between runs."""
    line = re.sub(r"\b[\d.]+(e-\d+)? s\b", "N s", line).replace("ipv6:%5B::1%5D", "ipv4:127.0.0.1")
    return re.sub(r"(?<=[a-z1]):\d+", ":PORT", line)


async def test_the_client_before_the_server(start):
    """CB-4, CH-3: a client that starts before the server reports a failed attempt, and later places its orders.

    Takes real time: one or two gaps of the backoff, and the client's own sleeps.
    """
    port = await free_port()
    shown = block("get-started.md", "attempt 1 failed", "text").splitlines()
    client, said = start("client.py", port)

    assert form(said.get(timeout=60)) == form(shown[0])
    start("server.py", port)
    placed = []
    while len(placed) < 3:
        line = said.get(timeout=60)
        if line.startswith("placed"):
            placed.append(line)
    assert client.wait(60) == 0
    assert placed == block("get-started.md", "placed order-1", "text").splitlines()[1:]
