"""`FlakyFront` follows its script on the wire, as observed through a raw socket."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import pytest

from grpc_backoff.testing.front import (
    FlakyFront,
    accept_close,
    accept_reset,
    http1_answer,
    settings_only,
    settings_then_close,
    silent,
    slow_settings,
)
from tests.echo import serving

SETTINGS_FRAME = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


async def look(front, *, say=PREFACE, read_for=0.3):
    """Connect, send something, and return the response and how it ended: closed, reset or open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    data, end = b"", "open"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(read_for):
            try:
                writer.write(say)
                while chunk := await reader.read(1000):
                    data += chunk
                end = "closed"
            except ConnectionError:
                end = "reset"
    writer.close()
    return data, end


@pytest.mark.parametrize(("behaviour", "end"), [(accept_close, "closed"), (accept_reset, "reset")])
async def test_accept(behaviour, end):
    """CB-6: `accept_close` and `accept_reset` accept, and close or reset without sending a byte."""
    async with FlakyFront(behaviour) as front:
        assert await look(front, say=b"") == (b"", end)


async def test_silent():
    """CB-3: `silent` accepts, sends nothing and records when the client hangs up."""
    async with FlakyFront(silent) as front:
        assert await look(front) == (b"", "open")
        async with asyncio.timeout(20):
            while front.visits[0].ended is None:
                await asyncio.sleep(0.01)


async def test_http1_answer():
    """CB-6: `http1_answer` responds with HTTP/1.1."""
    async with FlakyFront(http1_answer) as front:
        data, _ = await look(front)
        assert data.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("behaviour", "end"), [(settings_only, "open"), (settings_then_close(0), "closed")])
async def test_settings(behaviour, end):
    """CB-6, CB-7: `settings_only` and `settings_then_close` send SETTINGS; the second then closes."""
    async with FlakyFront(behaviour) as front:
        data, ended = await look(front, say=b"" if end == "closed" else PREFACE)
        assert data[3] == SETTINGS_FRAME
        assert ended == end


async def test_slow_settings():
    """CB-6: `slow_settings` delays the server's first bytes. Waits 0.5 s."""
    async with serving() as port, FlakyFront(slow_settings(0.4), upstream=("127.0.0.1", port)) as front:
        assert (await look(front, read_for=0.2))[0] == b""
        assert (await look(front, read_for=2))[0][3] == SETTINGS_FRAME


async def test_refuse_and_listen_again_on_the_same_port():
    """CB-4: `refuse` and `listen` keep the same port."""
    async with FlakyFront(silent) as front:
        port = front.port
        for _ in range(2):
            await front.refuse()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            await front.listen()
            assert await look(front, read_for=0.05) == (b"", "open")
        assert front.target == f"127.0.0.1:{port}"


async def test_break_all_resets_what_stands():
    """CB-6: `break_all` resets every open connection at once."""
    async with FlakyFront(silent) as front:
        looks = [asyncio.ensure_future(look(front, read_for=5)) for _ in range(3)]
        while len(front.visits) < 3:
            await asyncio.sleep(0.01)
        await front.break_all()
        assert [end for _, end in await asyncio.gather(*looks)] == ["reset"] * 3
        assert all(visit.ended for visit in front.visits)


@pytest.mark.parametrize("turns", range(6))
def test_front_that_ends_as_clients_come(turns):
    """CB-10: a front that is closed just as clients connect leaves none of the accepted sockets open."""
    ended = []

    async def come_and_go():
        front = FlakyFront(settings_then_close(60.0))
        async with front, asyncio.timeout(10.0):
            clients = [socket.create_connection(("127.0.0.1", front.port)) for _ in range(20)]
            for _ in range(turns):
                await asyncio.sleep(0)
        ended.extend(visit.ended is not None for visit in front.visits)
        return clients, [visit.writer.transport for visit in front.visits]

    clients, transports = asyncio.run(come_and_go())
    open_still = [transport for transport in transports if transport._sock is not None]
    for client in clients:
        client.close()
    gc.collect()  # an open socket would cause a warning, which fails the test
    assert all(ended)
    assert not open_still
