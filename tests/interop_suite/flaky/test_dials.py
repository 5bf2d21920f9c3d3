"""Watching a port from outside: dials that the kernel refuses are recorded."""

from __future__ import annotations

import asyncio
import socket

import pytest

from grpc_judge.flaky import dials as dials_module
from grpc_judge.flaky.dials import watch_dials


def may_listen():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).close()
    except PermissionError:
        return False
    return True


def dial(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port))


@pytest.mark.skipif(not may_listen(), reason="this user may not open a raw socket (CAP_NET_RAW)")
async def test_refused_dials_are_seen():
    """CB-4: every refused dial to the watched port is recorded, and dials to other ports are not."""
    with socket.socket() as nobody, socket.socket() as other:
        nobody.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        with watch_dials(nobody.getsockname()[1]) as dials:
            before = asyncio.get_running_loop().time()
            for sock in (nobody, other, nobody, nobody):
                assert dial(sock.getsockname()[1]) != 0
            async with asyncio.timeout(5):
                while len(dials.seen) < 3:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
    assert len(dials.seen) == 3
    assert dials.seen[0] >= before


async def test_who_may_not_listen_sees_nothing(monkeypatch):
    """CB-4: without permission to open raw sockets, `watch_dials` yields None instead of an empty record."""

    def refuse(*_arguments):
        raise PermissionError

    monkeypatch.setattr(dials_module.socket, "socket", refuse)
    with watch_dials(1) as dials:
        assert dials is None
