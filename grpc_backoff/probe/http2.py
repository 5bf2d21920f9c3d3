"""Dials with asyncio and h2 in order to observe every stage of an attempt: resolve, tcp, tls, settings.

The connector opens no streams, so its connections carry no RPCs, except the one call of a probe. It shows how far an
attempt gets, how long each stage takes and what the server sends, and it can hold a connection that counts as
established. `dial.py` implements the stages below HTTP/2, and `wire.py` interprets HTTP/2's bytes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable, Mapping
from typing import cast

from grpc_backoff.config.target import Address, Target, parse_target
from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.dial import (
    ALPN,
    CLOSED_WITHIN,
    Dialled,
    HttpProxy,
    in_words,
    reach,
    resolve,
    secure,
    security_of,
    tunnel,
)
from grpc_backoff.probe.reply import Reply
from grpc_backoff.probe.stages import (
    NoSettings,
    PassedOver,
    Reached,
    Resolved,
    Secured,
    Security,
    Settled,
    StageRecord,
    Tunnelled,
    WrongAlpn,
)
from grpc_backoff.probe.wire import Wire, describe

_LOG = logging.getLogger(__name__)

_CHUNK = 4 * 1024
"""How many bytes are processed in one turn of the event loop, so that a flood of small frames does not block it."""

_CLOSED = "the server closed the connection"
_MISSING = {
    Stage.RESOLVE: "name resolution did not complete",
    Stage.TCP: "the connection was not established",
    Stage.TLS: "the TLS handshake did not complete",
    Stage.SETTINGS: "no SETTINGS frame",
}
_ORDER = (*_MISSING,)


class Http2Connection(asyncio.BufferedProtocol):
    """An HTTP/2 connection with at most one call, for a probe, that follows the protocol.

    It acknowledges SETTINGS and PING, and ends when the server sends GOAWAY, closes the connection, or violates HTTP/2.
    It is an asyncio protocol for its transport. No channel uses it, so it has no calls.

    Attributes:
        address: the server's address.
        security: what TLS negotiated; None without TLS.
        closed: a future that is done when the socket is closed.
    """

    def __init__(self, address: Address) -> None:
        """Start without a transport, which `connection_made` supplies."""
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._wire = Wire()
        self._buffer = memoryview(bytearray(_CHUNK))  # asyncio's TLS fills a slice of it, which must not be a copy
        self._transport: asyncio.Transport | None = None
        self.security: Security | None = None
        self._writable = True
        self._error: Exception | None = None
        self._decided: asyncio.Future[None] = self._loop.create_future()  # SETTINGS arrived, or no longer can
        self._ended: asyncio.Future[Loss] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._replied: asyncio.Future[Reply] = self._loop.create_future()

    # Methods for the rest of the library.

    @property
    def settings(self) -> Mapping[str, int]:
        """The server's SETTINGS so far, by their names in RFC 9113."""
        return self._wire.settings or {}

    @property
    def head(self) -> bytes:
        """The first bytes received."""
        return self._wire.head

    def alive(self) -> bool:
        """Return whether the connection is up."""
        return not self._ended.done()

    async def lost(self) -> Loss:
        """Wait until the connection ends and return how it ended."""
        return await asyncio.shield(self._ended)

    async def call(self, method: str, authority: str) -> Reply:
        """Make a unary call with an empty message, once, and wait for its end, which a loss may prevent."""
        self._wire.call(method, authority, "http" if self.security is None else "https")
        self._act()
        return await asyncio.shield(self._replied)

    def retire(self) -> None:
        """Send GOAWAY and close the connection."""
        self._wire.say_goodbye()
        self._act()

    # Methods for the connector.

    async def settled(self) -> Mapping[str, int]:
        """Send the client's preface, wait for the server's SETTINGS frame and return its content.

        Raises:
            ConnectError: the connection ended before the frame arrived.
        """
        self._act()
        await self._decided
        if self._wire.settings is not None:
            return self._wire.settings
        if isinstance(self._error, ssl.SSLError):
            # In TLS 1.3, the handshake completes on this side before the server has checked our certificate.
            words = f"the server closed the connection after the handshake: {in_words(self._error)}"
            raise ConnectError(Failure(Stage.TLS, words)) from self._error
        reason = self._ended.result().reason
        what = describe(self.head) if self.head else "it had sent nothing"
        failure = Failure(Stage.SETTINGS, reason if what in reason else f"{reason}; {what}")
        raise ConnectError(failure) from NoSettings(self.head, self._error)

    def abort(self) -> None:
        """Close the socket immediately (CB-3)."""
        if self._transport is not None:
            self._transport.abort()

    # Methods for the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the transport that TLS or TCP has opened; nothing is sent before `settled`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self.security = security_of(transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer for incoming data."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process the data received and respond to it."""
        self._wire.feed(bytes(self._buffer[:nbytes]))
        self._act()
        if nbytes == len(self._buffer):  # there is more, and uvloop would read it all before serving others
            self._read(False)
            self._loop.call_soon(self._read, True)

    def eof_received(self) -> None:
        """Record that the server closed the connection; the transport then closes itself."""
        self._end(Loss(_CLOSED))

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the connection, unless it is known already."""
        self._transport = None
        if isinstance(exc, ConnectionResetError | BrokenPipeError):  # the latter if we wrote before reading the reset
            self._end(Loss("the server reset the connection"), exc)
        else:
            self._end(Loss(_CLOSED if exc is None else f"the connection broke: {in_words(exc)}"), exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Stop reading while the server does not read, so that responses do not pile up."""
        self._writable = False
        self._read(False)

    def resume_writing(self) -> None:
        """Resume reading."""
        self._writable = True
        self._read(True)

    def _read(self, wanted: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if wanted and self._writable:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _act(self) -> None:
        """Send what the wire has to send and report the SETTINGS and the loss that it has found."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._wire.to_send())
        if self._wire.settings is not None and not self._decided.done():
            self._decided.set_result(None)
        if self._wire.reply is not None and not self._replied.done():
            self._replied.set_result(self._wire.reply)
        if self._wire.loss is not None:
            self._end(self._wire.loss)

    def _end(self, loss: Loss, error: Exception | None = None) -> None:
        if self._ended.done():
            return
        self._ended.set_result(loss)
        self._error = error
        if not self._decided.done():
            self._decided.set_result(None)
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(CLOSED_WITHIN, self.abort)


class Http2Connector:
    """Makes connections to one target, one attempt at a time, and reports each stage as it completes."""

    def __init__(
        self,
        target: str | Target,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        proxy: HttpProxy | None = None,
        on_stage: Callable[[StageRecord], object] = lambda _: None,
    ) -> None:
        """Parse the target and prepare the TLS context.

        Args:
            target: the server's address, in gRPC's syntax or already parsed.
            tls: the TLS context; None for plaintext. Its ALPN protocols are set to `h2` only.
            server_name: the name to check the server's certificate against, if not the target's host.
            proxy: the HTTP proxy through which the target is dialled; None to dial it directly.
            on_stage: called on the event loop with the result of each stage; its return value is ignored and its
                exceptions are logged.

        Raises:
            OptionError: the target is not valid, or cannot be dialled directly.
        """
        self.target = parse_target(target) if isinstance(target, str) else target
        if tls is not None:
            tls.set_alpn_protocols([ALPN])
        self.tls = tls
        self.server_name = server_name or self.target.host
        self.proxy = proxy
        self.on_stage = on_stage
        self._open: set[Http2Connection] = set()
        # The stage that the attempt has reached, where, since when, and its connection.
        self._stage, self._where, self._since = Stage.RESOLVE, "", 0.0
        self._connection: Http2Connection | None = None

    async def connect(self, limit: float) -> Http2Connection:
        """Make one attempt; see `Connector.connect`. If the limit expires, the error names the stage reached."""
        self._stage, self._where, self._connection = Stage.RESOLVE, self.target.host, None
        self.lap()
        try:
            async with asyncio.timeout(limit if math.isfinite(limit) else None):
                return await self._dial()
        except TimeoutError as error:
            head = b"" if self._connection is None else self._connection.head
            progress = f"; {describe(head)}" if head else ""
            words = f"{self._where}: {_MISSING[self._stage]} within {limit:.3g} s of the attempt's start{progress}"
            cause = NoSettings(head, error) if self._stage is Stage.SETTINGS else error
            raise ConnectError(Failure(self._stage, words)) from cause

    async def close(self, grace: float | None) -> None:  # noqa: ARG002 - there are no calls to wait for
        """Close all connections and wait until their sockets are closed."""
        connections = tuple(self._open)
        for connection in connections:
            connection.retire()
        await asyncio.gather(*(asyncio.shield(connection.closed) for connection in connections))

    async def _dial(self) -> Http2Connection:
        """Go through the stages with one address after another, until one succeeds or none is left."""
        addresses = await resolve(self.target if self.proxy is None else self.proxy.target)
        self._tell(Resolved(took=self.lap(), addresses=addresses))
        errors = []
        while addresses:
            self._stage, self._where = Stage.TCP, ", ".join(map(str, addresses))
            try:
                dialled = await reach(addresses)
            except ConnectError as error:
                errors.append(error)
                break
            addresses = [
                address for address in addresses if address != dialled.address and address not in dialled.failed
            ]
            try:
                return await self._talk(dialled)
            except ConnectError as error:
                errors.append(error)
                if addresses:
                    self._tell(PassedOver(took=self.lap(), address=dialled.address, failure=error.failure))
        # The failures of several addresses are combined: the stage of the one that got furthest, and all reasons.
        furthest = max(errors, key=lambda error: _ORDER.index(error.failure.stage))
        reasons = "; ".join(error.failure.reason for error in errors)
        raise ConnectError(Failure(furthest.failure.stage, reasons)) from furthest.__cause__

    async def _talk(self, dialled: Dialled) -> Http2Connection:
        """Go through the stages after TCP."""
        self._where, self._connection = str(dialled.address), None
        failed = {address: in_words(error) for address, error in dialled.failed.items()}
        self._tell(Reached(took=self.lap(), address=dialled.address, failed=failed))
        try:
            if self.proxy is not None:
                answer = await tunnel(dialled.sock, self.target, self.proxy.credentials)
                self._tell(Tunnelled(took=self.lap(), answer=answer))
            self._stage = Stage.SETTINGS if self.tls is None else Stage.TLS
            connection = self._connection = await secure(
                dialled.sock, self.tls, self.server_name, lambda: Http2Connection(dialled.address)
            )
            self._open.add(connection)
            connection.closed.add_done_callback(lambda _: self._open.discard(connection))
            return await self._settle(connection)
        except ConnectError as error:
            failure = Failure(error.failure.stage, f"{self._where}: {error.failure.reason}")
            raise ConnectError(failure) from error.__cause__

    async def _settle(self, connection: Http2Connection) -> Http2Connection:
        try:
            if connection.security is not None:
                _check_alpn(connection.security.alpn)
                self._stage = Stage.SETTINGS
                self._tell(Secured(took=self.lap(), security=connection.security))
                # Let the event loop read before anything is written. If a client certificate is missing, a server with
                # TLS 1.3 sends an alert and hangs up after the handshake has completed on this side. Writing to a
                # socket that was reset closes the transport, and the alert would never be read.
                await asyncio.sleep(0)  # the loop now notices pending data, and queues the read after us
                await asyncio.sleep(0)
            settings = await connection.settled()
        except BaseException:
            connection.abort()
            raise
        self._tell(Settled(took=self.lap(), settings=settings))
        return connection

    def lap(self) -> float:
        """Begin a stage; return how long the one before it took, in seconds."""
        now = time.perf_counter()  # finer than the loop's clock, which uvloop rounds to milliseconds
        took, self._since = now - self._since, now
        return took

    def _tell(self, record: StageRecord) -> None:
        try:
            self.on_stage(record)
        except Exception:  # noqa: BLE001 - CH-11: a listener may raise anything
            _LOG.exception("a listener for the stages of connecting to %s raised", self.target.text)


def _check_alpn(alpn: str | None) -> None:
    if alpn != ALPN:
        chosen = "none" if alpn is None else repr(alpn)
        words = f"the server accepted TLS, but not HTTP/2: ALPN {ALPN!r} is required; the server chose {chosen}"
        raise ConnectError(Failure(Stage.TLS, words)) from WrongAlpn(alpn)
