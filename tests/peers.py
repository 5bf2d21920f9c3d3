"""Servers whose every byte is chosen by a test, in plaintext or with TLS, and a check for what clients leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading

import psutil
from hyperframe.frame import GoAwayFrame, PingFrame, SettingsFrame

SETTINGS = SettingsFrame(0, settings={3: 100, 4: 65535}).serialize()
PING = PingFrame(0, b"12345678").serialize()


def goaway(code=0, words=b""):
    return GoAwayFrame(0, last_stream_id=0, error_code=code, additional_data=words).serialize()


def says(*steps):
    """Return a behaviour with these steps: bytes to send, seconds to sleep, `"read"` once, or `"hold"` until EOF."""

    async def behave(reader, writer):
        for step in steps:
            match step:
                case bytes():
                    writer.write(step)
                case "read":
                    await reader.read(65536)
                case "hold":
                    while await reader.read(65536):
                        pass
                case _:
                    await asyncio.sleep(step)

    return behave


@contextlib.asynccontextmanager
async def peer(behave, *, tls=None, path=None):
    """Run a server; yield its target. Connections close when their behaviour returns, or at the end."""
    running = {}

    async def treat(reader, writer):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await behave(reader, writer)
        writer.close()

    def accepted(reader, writer):
        running[asyncio.ensure_future(treat(reader, writer))] = writer

    if path:
        server = await asyncio.start_unix_server(accepted, path, ssl=tls)
    else:
        server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"unix:{path}" if path else f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task, writer in running.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*running, return_exceptions=True)


@contextlib.asynccontextmanager
async def openssl_peer(tls):
    """Serve TLS with OpenSSL itself, which sends an alert when it ends a handshake; asyncio's servers do not.

    Like established servers, it then waits for the client to hang up, so that the alert is not lost in a reset.
    """

    def treat(sock):
        connection = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        try:
            connection.do_handshake()
            while connection.recv(65536):
                pass
        except OSError:
            pass
        with socket.socket(fileno=connection.detach()) as bare, contextlib.suppress(OSError):
            bare.shutdown(socket.SHUT_WR)
            while bare.recv(65536):
                pass

    async with _in_a_thread(treat) as target:
        yield target


@contextlib.asynccontextmanager
async def hanging_up():
    """Send SETTINGS and hang up at once, faster than a server on an event loop."""
    treated = []

    def treat(sock):
        treated.append(sock)
        sock.sendall(SETTINGS)
        sock.shutdown(socket.SHUT_WR)

    try:
        async with _in_a_thread(treat) as target:
            yield target
    finally:
        for sock in treated:
            sock.close()


@contextlib.asynccontextmanager
async def _in_a_thread(treat):
    """Accept connections in a thread and treat one after the other; yield the target."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                treat(listener.accept()[0])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        await asyncio.to_thread(thread.join)


@contextlib.contextmanager
def deaf_port():
    """Listen on a port that does not answer connection requests, because its backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def server_tls(certificate, *, alpn=("h2",), clients=None, newest=None):
    """Return a server's TLS context with its certificate, ALPN protocols and, optionally, the CA for clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        clients.configure_trust(context)
    if newest:
        context.maximum_version = newest
    return context


def client_tls(authority, *, certificate=None):
    """Return a client's TLS context with the CA that it trusts and, optionally, its own certificate."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate:
        certificate.configure_cert(context)
    return context


@contextlib.asynccontextmanager
async def nothing_left():
    """Fail if a socket or a task of the block remains five seconds after the block ends."""
    await _open_a_stream()
    process, tasks = psutil.Process(), asyncio.all_tasks()
    before = process.num_fds()
    yield
    for _ in range(500):
        if process.num_fds() <= before and asyncio.all_tasks() <= tasks:
            break
        await asyncio.sleep(0.01)
    assert process.num_fds() <= before
    assert asyncio.all_tasks() <= tasks


async def _open_a_stream():
    """Open a stream once, because the first stream makes uvloop open descriptors that it keeps."""
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        transport.abort()
    await asyncio.sleep(0.01)
