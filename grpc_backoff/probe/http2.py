"""Dials with asyncio and h2 in order to observe every stage of an attempt: resolve, tcp, tls, settings.

The connector opens no streams, so its connections carry no RPCs, except the one call of a probe. It shows how far an
attempt gets, how long each stage takes and what the server sends, and it can hold a connection that counts as
established. `dial.py` implements the stages below HTTP/2, and `wire.py` interprets HTTP/2's bytes.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping

from grpc_backoff.config.target import Address, Target, parse_target
from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.dial import ALPN, Dialled, HttpProxy, Transport, in_words, reach, resolve, security_of, tunnel
from grpc_backoff.probe.stages import NoSettings, StageListener, WrongAlpn
from grpc_backoff.probe.wire import Wire, describe

_CLOSED = "the server closed the connection"
_MISSING = {
    Stage.RESOLVE: "name resolution did not complete",
    Stage.TCP: "the connection was not established",
    Stage.TLS: "the TLS handshake did not complete",
    Stage.SETTINGS: "no SETTINGS frame",
}
_ORDER = (*_MISSING,)


class Http2Connection:
    """An HTTP/2 connection with at most one call, for a probe, that follows the protocol.

    It acknowledges SETTINGS and PING, and ends when the server sends GOAWAY, closes the connection, or violates HTTP/2.
    All this happens only while a task waits for one of its methods, and one task at a time may.

    Attributes:
        wire: what has arrived: the server's SETTINGS, the answer to the call, and how the connection ended.
    """

    def __init__(self, transport: Transport) -> None:
        """Begin on a transport, which belongs to the connection from now on."""
        self._transport = transport
        self.wire = Wire()
        self._error: Exception | None = None

    async def settled(self) -> Mapping[str, int]:
        """Send the client's preface, wait for the server's SETTINGS frame and return its content.

        Raises:
            ConnectError: the connection ended before the frame arrived.
        """
        await self._until(lambda: self.wire.settings is not None)
        if self.wire.settings is not None:
            return self.wire.settings
        assert self.wire.loss is not None, "nothing else ends the wait"
        if isinstance(self._error, ssl.SSLError):
            # In TLS 1.3, the handshake completes on this side before the server has checked our certificate.
            words = f"the server closed the connection after the handshake: {in_words(self._error)}"
            raise ConnectError(Failure(Stage.TLS, words)) from self._error
        reason = self.wire.loss.reason
        what = describe(self.wire.head) if self.wire.head else "it had sent nothing"
        failure = Failure(Stage.SETTINGS, reason if what in reason else f"{reason}; {what}")
        raise ConnectError(failure) from NoSettings(self.wire.head, self._error)

    def alive(self) -> bool:
        """Return whether the connection is up, as far as is known."""
        return self.wire.loss is None

    async def call(self, method: str, authority: str) -> None:
        """Make a unary call with an empty message, once, and wait for its end or that of the connection."""
        if self.wire.loss is None:
            self.wire.call(method, authority, "http" if self._transport.tls is None else "https")
        await self._until(lambda: self.wire.reply is not None)

    async def lost(self) -> Loss:
        """Wait until the connection has ended and its socket is closed; return how it ended."""
        await self._until(lambda: False)
        assert self.wire.loss is not None, "nothing else ends the wait"
        return self.wire.loss

    def retire(self) -> None:
        """Use the connection no more; `close`, or a wait for its end, sends GOAWAY and closes it."""
        self.wire.say_goodbye()

    async def close(self) -> None:
        """Send GOAWAY and close the connection."""
        self.retire()
        await self._transport.close(self.wire.to_send())

    async def _until(self, done: Callable[[], bool]) -> None:
        """Send what the wire has to send, and let it read what arrives, until there is no need to, or the end."""
        while self.wire.loss is None and not done():
            try:
                await self._send()
                data = await self._transport.receive()
            except OSError as error:
                self._error, data = error, b""
            if data:
                self.wire.feed(data)
            elif self._error is None:
                self.wire.loss = Loss(_CLOSED)
            elif isinstance(self._error, ConnectionResetError | BrokenPipeError):
                self.wire.loss = Loss("the server reset the connection")
            else:
                self.wire.loss = Loss(f"the connection broke: {in_words(self._error)}")
        if self.wire.loss is not None:
            await self.close()

    async def _send(self) -> None:
        try:
            await self._transport.send(self.wire.to_send())
        except ConnectionError as error:
            self._error = error  # go on, because what the server said before it hung up can still be read


class Http2Connector:
    """Makes connections to one target, one attempt at a time, and reports each stage as it completes.

    Attributes:
        authority: the `:authority` of a call, as a channel would send it.
        listener: hears of the stages, on the event loop.
        address: the server's address at which the attempt is or failed; None if none was reached, or only a proxy's.
    """

    def __init__(
        self,
        target: str | Target,
        *,
        tls: ssl.SSLContext | None = None,
        shows_certificate: bool = False,
        server_name: str | None = None,
        proxy: HttpProxy | None = None,
        listener: StageListener | None = None,
    ) -> None:
        """Parse the target and prepare the TLS context.

        Args:
            target: the server's address, in gRPC's syntax or already parsed.
            tls: the TLS context; None for plaintext. Its ALPN protocols are set to `h2` only.
            shows_certificate: whether that context has a client certificate, which it does not tell.
            server_name: the name to check the server's certificate against, if not the target's host.
            proxy: the HTTP proxy through which the target is dialled; None to dial it directly.
            listener: hears of the stages, on the event loop.

        Raises:
            OptionError: the target is not valid, or cannot be dialled directly.
        """
        self.target = parse_target(target) if isinstance(target, str) else target
        if tls is not None:
            tls.set_alpn_protocols([ALPN])
        self.tls = tls
        self.shows_certificate = shows_certificate
        self.server_name = server_name or self.target.host
        self.authority = self.target.host if self.target.unix else server_name or self.target.host_port
        self.proxy = proxy
        self.address: Address | None = None
        self.listener = listener or StageListener()
        self._made: list[Http2Connection] = []
        # The stage that the attempt has reached, where, since when, and its connection.
        self._stage, self._where, self._since = Stage.RESOLVE, "", 0.0
        self._connection: Http2Connection | None = None

    async def connect(self, limit: float) -> Http2Connection:
        """Make one attempt; see `Connector.connect`. If the limit expires, the error names the stage reached."""
        self._stage, self._where, self._connection, self.address = Stage.RESOLVE, self.target.host, None, None
        self.lap()
        try:
            async with asyncio.timeout(limit if math.isfinite(limit) else None):
                return await self._dial()
        except TimeoutError as error:
            head = b"" if self._connection is None else self._connection.wire.head
            progress = f"; {describe(head)}" if head else ""
            words = f"{self._where}: {_MISSING[self._stage]} within {limit:.3g} s of the attempt's start{progress}"
            cause = NoSettings(head, error) if self._stage is Stage.SETTINGS else error
            raise ConnectError(Failure(self._stage, words)) from cause

    async def close(self, grace: float | None) -> None:  # noqa: ARG002 - there are no calls to wait for
        """Close all connections."""
        await asyncio.gather(*(connection.close() for connection in self._made))

    async def _dial(self) -> Http2Connection:
        """Go through the stages with one address after another, until one succeeds or none is left."""
        addresses = await resolve(self.target if self.proxy is None else self.proxy.target)
        self.listener.resolved(self.lap(), addresses)
        errors: list[tuple[ConnectError, Address | None]] = []
        while addresses:
            self._stage, self._where = Stage.TCP, ", ".join(map(str, addresses))
            try:
                dialled = await reach(addresses)
            except ConnectError as error:
                errors.append((error, self.address))
                break
            addresses = [
                address for address in addresses if address != dialled.address and address not in dialled.failed
            ]
            try:
                return await self._talk(dialled)
            except ConnectError as error:
                errors.append((error, self.address))
                if addresses:
                    self.listener.passed_over(self.lap(), dialled.address, error.failure)
        # The failures of several addresses are combined: the stage of the one that got furthest, and all reasons.
        furthest, self.address = max(errors, key=lambda failed: _ORDER.index(failed[0].failure.stage))
        reasons = "; ".join(error.failure.reason for error, _ in errors)
        raise ConnectError(Failure(furthest.failure.stage, reasons)) from furthest.__cause__

    async def _talk(self, dialled: Dialled) -> Http2Connection:
        """Go through the stages after TCP."""
        self._where, self._connection = str(dialled.address), None
        self.address = dialled.address if self.proxy is None else None
        failed = {address: in_words(error) for address, error in dialled.failed.items()}
        transport = Transport(dialled.sock)
        try:
            self.listener.reached(self.lap(), dialled.address, failed)
            if self.proxy is not None:
                answer = await tunnel(dialled.sock, self.target, self.proxy.credentials)
                self.listener.tunnelled(self.lap(), answer)
            if self.tls is not None:
                self._stage = Stage.TLS
                security = security_of(await transport.secure(self.tls, self.server_name))
                _check_alpn(security.alpn)
                self.listener.secured(self.lap(), security)
            self._stage = Stage.SETTINGS
            connection = self._connection = Http2Connection(transport)
            settings = await connection.settled()
        except BaseException as error:
            transport.abort()
            if not isinstance(error, ConnectError):
                raise
            failure = Failure(error.failure.stage, f"{self._where}: {error.failure.reason}")
            raise ConnectError(failure) from error.__cause__
        self._made.append(connection)
        self.listener.settled(self.lap(), settings)
        return connection

    def lap(self) -> float:
        """Begin a stage; return how long the one before it took, in seconds."""
        now = time.perf_counter()  # finer than the loop's clock, which uvloop rounds to milliseconds
        took, self._since = now - self._since, now
        return took


def _check_alpn(alpn: str | None) -> None:
    if alpn != ALPN:
        chosen = "none" if alpn is None else repr(alpn)
        words = f"the server accepted TLS, but not HTTP/2: ALPN {ALPN!r} is required; the server chose {chosen}"
        raise ConnectError(Failure(Stage.TLS, words)) from WrongAlpn(alpn)
