"""The stages of an attempt below HTTP/2: name resolution, TCP, the tunnel through an HTTP proxy, and TLS.

Each stage is a function. It returns what the next stage needs, or raises a `ConnectError` with the stage and the
reason, whose cause is the underlying error. Cancelling a stage leaves no socket and no task behind. The caller has to
limit their combined time (CB-3).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import socket
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.target import Address, Target, parse_target
from grpc_backoff.connection.connector import ConnectError
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.stages import Certificate, NoTunnel, Security

ALPN = "h2"
"""The only protocol that gRPC uses over TLS."""

_CLOSED_WITHIN = 0.2
"""How long an orderly close of TLS or HTTP/2 may delay closing the socket, in seconds."""
_CHUNK = 4 * 1024
"""How many bytes are read in one turn of the event loop."""

_STAGGER = 0.25
"""How long to wait for one address before trying the next in parallel, in seconds (Happy Eyeballs, gRFC A61)."""
_LONGEST_HEAD = 16 * 1024
"""The longest answer of an HTTP proxy that is read, in bytes."""

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
}

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Dialled:
    """A connected socket, its address, and the errors of the addresses that failed before."""

    address: Address
    sock: socket.socket
    failed: Mapping[Address, BaseException]


async def resolve(target: Target) -> Sequence[Address]:
    """Return the addresses of a target in the order in which to try them, alternating between families (gRFC A61).

    The system's resolver is called in a thread. If it hangs, the thread outlives a cancelled attempt.
    """
    if target.addresses:
        return target.addresses
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, ValueError) as error:  # ValueError for an impossible name, such as one of 300 letters
        raise ConnectError(Failure(Stage.RESOLVE, f"{target.host}: {in_words(error)}")) from error
    return _taking_turns(Address(socket.AddressFamily(info[0]), info[4]) for info in found)


def _taking_turns(addresses: Iterable[Address]) -> Sequence[Address]:
    families: dict[socket.AddressFamily, list[Address]] = {}
    for address in dict.fromkeys(addresses):
        families.setdefault(address.family, []).append(address)
    return [address for turn in itertools.zip_longest(*families.values()) for address in turn if address is not None]


async def reach(addresses: Sequence[Address]) -> Dialled:
    """Connect a socket to the first address that answers (Happy Eyeballs, RFC 8305).

    The next address is tried when the previous one fails, or in parallel if that takes long, because an address that
    drops packets must not use up the attempt's limit.
    """
    waiting = deque(addresses)
    running: dict[asyncio.Task[socket.socket], Address] = {}
    failed: dict[Address, BaseException] = {}
    try:
        while waiting or running:
            if waiting:
                address = waiting.popleft()
                running[asyncio.create_task(_connected(address))] = address
            stagger = _STAGGER if waiting else None
            done, _ = await asyncio.wait(running, timeout=stagger, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    return Dialled(running.pop(task), task.result(), failed)
                failed[running.pop(task)] = error
    finally:
        await _discard(running)
    reasons = "; ".join(f"{address}: {in_words(error)}" for address, error in failed.items())
    raise ConnectError(Failure(Stage.TCP, reasons)) from _most_telling(list(failed.values()))


def _most_telling(errors: Sequence[BaseException]) -> BaseException:
    """Return the most informative error: a refusal if there is one, because it came from a host, or else the last.

    Earlier errors may only mean that this machine has no IPv6.
    """
    return next((error for error in errors if isinstance(error, ConnectionRefusedError)), errors[-1])


async def _connected(address: Address) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
        sock.getpeername()  # asyncio reports success for a Unix socket whose backlog is full; this call does not
    except BaseException:
        sock.close()
        raise
    return sock


async def _discard(tasks: Collection[asyncio.Task[socket.socket]]) -> None:
    for task in tasks:
        if not task.cancel() and task.exception() is None:
            task.result().close()  # this one connected at the same moment
    if tasks:
        await asyncio.wait(tasks)


class HttpProxy(NamedTuple):
    """An HTTP proxy, through which a target is dialled with CONNECT, as grpc's core does.

    Attributes:
        target: the address of the proxy.
        credentials: the user and the password for it, as `user:password`; empty for none.
    """

    target: Target
    credentials: str = ""


def read_proxy(url: str) -> HttpProxy:
    """Return the proxy that a URL describes, in the form that grpc's core reads.

    Raises:
        OptionError: it names no host. The error does not contain the URL, which may have a password.
    """
    try:
        credentials, _, place = urlsplit(url).netloc.rpartition("@")
        return HttpProxy(parse_target(place), unquote(credentials))
    except ValueError:  # an OptionError, or urlsplit's own for brackets that are not closed
        raise OptionError("proxy", "...", "a URL such as http://proxy.example.com:3128") from None


async def tunnel(sock: socket.socket, target: Target, credentials: str) -> str:
    """Ask an HTTP proxy on a connected socket for a tunnel to a target; return the first line of its answer.

    Raises:
        ConnectError: the proxy does not make the tunnel.
    """
    loop, head = asyncio.get_running_loop(), b""
    lines = [f"CONNECT {target.host_port} HTTP/1.1", f"Host: {target.host_port}"]
    if credentials:
        lines.append(f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}")
    try:
        await loop.sock_sendall(sock, "".join(f"{line}\r\n" for line in (*lines, "")).encode())
        while not head.endswith(b"\r\n\r\n") and len(head) < _LONGEST_HEAD:
            byte = await loop.sock_recv(sock, 1)  # what follows is the server's
            if not byte:
                break
            head += byte
    except OSError as error:
        raise ConnectError(Failure(Stage.TCP, f"the HTTP proxy broke off: {in_words(error)}")) from error
    answer = head.partition(b"\r\n")[0].decode(errors="replace")
    found = re.fullmatch(r"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?", answer)
    if found is None or found[1][0] != "2" or not head.endswith(b"\r\n\r\n"):
        said = f"answered {answer!r}" if found else "did not answer in HTTP"
        raise ConnectError(Failure(Stage.TCP, f"the HTTP proxy {said}")) from NoTunnel(int(found[1]) if found else 0)
    return answer


class Transport:
    """A connected socket, which one task at a time uses: bytes in and out, through TLS once `secure` has returned.

    TLS runs on buffers here, because asyncio's transports hide how a handshake failed, and what arrived before a reset.

    Attributes:
        tls: the client's end of TLS; None without TLS.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Own a connected socket, which has to be non-blocking."""
        self.tls: ssl.SSLObject | None = None
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()

    async def secure(self, context: ssl.SSLContext, server_name: str) -> ssl.SSLObject:
        """Make a TLS handshake and return the client's end of TLS."""
        try:
            self.tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=server_name)
        except (TypeError, ValueError) as error:
            raise ConnectError(Failure(Stage.TLS, f"no certificate can be issued for {server_name!r}")) from error
        try:
            await self._through(self.tls.do_handshake)
        except (EOFError, OSError) as error:
            raise ConnectError(Failure(Stage.TLS, _handshake_words(error))) from error
        return self.tls

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait while the server does not read."""
        if self.tls is not None and data:
            self.tls.write(data)
            data = self._leaving.read()
        await self._loop.sock_sendall(self._sock, data)

    async def receive(self) -> bytes:
        """Return what has arrived, a few KiB at most; nothing if the server has closed the connection."""
        await asyncio.sleep(0)  # a flood of small frames must not block the event loop
        if self.tls is None:
            return await self._loop.sock_recv(self._sock, _CHUNK)
        with contextlib.suppress(EOFError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return await self._through(partial(self.tls.read, _CHUNK))
        return b""

    async def close(self, last: bytes = b"") -> None:
        """Send the last bytes, end TLS, and close the socket; all that takes at most 200 ms."""
        try:
            with contextlib.suppress(EOFError, OSError, ValueError):  # ValueError if the socket is closed already
                async with asyncio.timeout(_CLOSED_WITHIN):
                    await self.send(last)
                    if self.tls is not None:
                        await self._through(self.tls.unwrap)
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the socket immediately (CB-3)."""
        self._sock.close()

    async def _through(self, step: Callable[[], ResultT]) -> ResultT:
        """Take a step of TLS, for which bytes may have to come and go; EOFError if the server closes the connection."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
            else:
                await self._flush()
                return result
            data = await self._loop.sock_recv(self._sock, _CHUNK)
            if not data:
                raise EOFError
            self._arrived.write(data)

    async def _flush(self) -> None:
        if self._leaving.pending:
            await self._loop.sock_sendall(self._sock, self._leaving.read())


def security_of(tls: ssl.SSLObject) -> Security:
    """Return what TLS negotiated."""
    shown: Any = tls.getpeercert()  # which is more than its type says
    cipher = tls.cipher()
    certificate = None
    if shown:
        certificate = Certificate(
            subject=_distinguished(shown["subject"]),
            issuer=_distinguished(shown["issuer"]),
            names=tuple(value for _, value in shown.get("subjectAltName", ())),
            not_before=_moment(shown["notBefore"]),
            not_after=_moment(shown["notAfter"]),
        )
    return Security(
        version=tls.version() or "?",
        cipher=cipher[0] if cipher else "?",
        alpn=tls.selected_alpn_protocol(),
        certificate=certificate,
    )


def _distinguished(name: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return ", ".join(f"{_SHORT.get(key, key)}={value}" for part in name for key, value in part)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
    except (OSError, OverflowError, ValueError):
        return None  # a certificate may contain nonsense


def _handshake_words(error: EOFError | OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate was not accepted: {in_words(error)}"
    if isinstance(error, EOFError | ssl.SSLEOFError):
        return "the server closed the connection during the handshake"
    return f"the handshake failed: {in_words(error)}"


def in_words(error: BaseException) -> str:
    """Return the text of a socket error, without error numbers, addresses and source locations."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, UnicodeError):  # raised when a name is encoded for the resolver
        return "this is not a host name"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
