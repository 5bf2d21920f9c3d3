"""The get-started page: its files and commands, in the page's order."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading

import pytest

from grpc_judge.runner.process import free_port
from tests.docs.pages import ADDRESS, blocks


@pytest.fixture
def start(shop, tmp_path):
    """Return a function that starts one of the page's programs on another port and returns process and output."""
    running = []

    def run(program, port):
        file = tmp_path / program
        file.write_text((shop / program).read_text().replace(ADDRESS, f"localhost:{port}"))
        # Behind `nohup` or a shell's `&`, SIGINT is ignored, and programs inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            process = subprocess.Popen(
                [sys.executable, "-u", file],
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(shop), *sys.path])},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)
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


def form(line):
    """Return a line without times, ports and the IP version, which differ between runs."""
    line = re.sub(r"\b[\d.]+(e-\d+)? s\b", "N s", line).replace("ipv6:%5B::1%5D", "ipv4:127.0.0.1")
    return re.sub(r"(?<=[a-z1]):\d+", ":PORT", line)


def interrupted(process):
    """Stop a program as Ctrl-C does and return its exit status."""
    process.send_signal(signal.SIGINT)
    return process.wait(60)


def until(said, beginning, before=()):
    """Return the next line with this beginning; all lines before it must have a form that the page shows."""
    while not (line := said.get(timeout=60)).startswith(beginning):
        assert not line.startswith("Traceback")
        assert not before or form(line) in before, line
    return line


async def test_the_outage_on_the_page(start):
    """CB-4, CH-2, CH-3: the client outlives a late start and a restart of its server and logs what the page shows.

    Takes real time: some gaps of the backoff, and the client's own sleeps. Ctrl-C ends all programs quietly.
    """
    port = free_port()
    first, connected, outage = blocks("get-started.md", "text")
    client, said = start("client.py", port)

    assert form(said.get(timeout=60)) == form(first.splitlines()[0])
    server, _ = start("server.py", port)
    line = until(said, "placed")
    assert line == connected.splitlines()[1] == "placed order-1"

    until(said, "placed order-2")
    assert interrupted(server) == 0
    shown = [form(line) for line in outage.splitlines()]
    assert form(until(said, f"localhost:{port}: the connection was lost")) == shown[0]
    assert form(until(said, f"localhost:{port}: attempt 1 failed")) == shown[1]
    server, output = start("server.py", port)
    until(
        said,
        f"localhost:{port}: connected on attempt",
        [re.sub("attempt 2", f"attempt {n}", shown[2]) for n in range(2, 9)],
    )
    until(said, "placed order-")

    assert interrupted(server) == 0
    assert interrupted(client) == 0
    assert output.empty()
