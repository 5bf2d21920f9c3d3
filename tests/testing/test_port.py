"""A `Port` that refuses connections stays bound, and resets connections that were not yet accepted."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from grpc_backoff.testing.port import Port, reset


@contextlib.contextmanager
def port(host="127.0.0.1", number=0):
    """Yield a port and the list of sockets that it accepts."""
    accepted = []
    made = Port(host, number, accepted.append)
    try:
        yield made, accepted
    finally:
        made.close()
        for sock in accepted:
            sock.close()


async def until_accepted(accepted, number):
    async with asyncio.timeout(10.0):
        while len(accepted) < number:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:"), ("::1", "[::1]:")])
async def test_listens_refuses_and_listens_again(host, shown):
    """CB-4: a port keeps its number while it refuses, and no other socket can bind it."""
    with port(host) as (made, accepted):
        assert made.target == f"{shown}{made.number}"
        for turn in (1, 2):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, made.number)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
                other.bind((host, made.number))
            made.listen()
            _, writer = await asyncio.open_connection(host, made.number)
            await until_accepted(accepted, turn)
            writer.close()
            made.refuse()


async def test_what_nobody_accepted_is_reset():
    """CB-6: a connection that has not been accepted yet is reset when the port begins to refuse."""
    with port() as (made, accepted):
        made.listen()
        client = socket.create_connection(("127.0.0.1", made.number))  # blocks the loop, so it is not accepted
        made.refuse()
        with client, pytest.raises(ConnectionResetError):
            client.recv(1)
        assert accepted == []


async def test_refusing_lets_what_was_accepted_go_on():
    """CB-4: `refuse` does not affect accepted connections; `reset` ends them with RST."""
    with port() as (made, accepted):
        made.listen()
        reader, writer = await asyncio.open_connection("127.0.0.1", made.number)
        await until_accepted(accepted, 1)
        made.refuse()
        accepted[0].send(b"still here")
        assert await reader.read(100) == b"still here"
        reset(accepted[0])
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()


async def test_accepts_again_after_it_ran_out_of_descriptors(monkeypatch):
    """IO-3: if accepting fails for lack of file descriptors, it is retried after a pause. Waits 0.1 s."""
    with port() as (made, accepted):
        real, made._sock = made._sock, None
        calls = []

        class Exhausted:
            def accept(self):
                calls.append(asyncio.get_running_loop().time())
                if len(calls) == 1:
                    raise OSError(24, "Too many open files")
                return real.accept()

            def __getattr__(self, name):
                return getattr(real, name)

        made._sock = Exhausted()
        made.listen()
        _, writer = await asyncio.open_connection("127.0.0.1", made.number)
        await until_accepted(accepted, 1)
        writer.close()
        assert calls[1] - calls[0] >= 0.09


async def test_only_addresses():
    """CH-8: a host name is rejected, because it may have several addresses."""
    with pytest.raises(ValueError, match="localhost"):
        Port("localhost", 0, lambda _: None)
