"""What the stages of an attempt find, and the causes of their failures, for callers that want more than the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from grpc_backoff.config.target import Address
from grpc_backoff.decide.connections.events import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A server's certificate: its names, its issuer and its period of validity, in UTC; None if a time is malformed."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime | None
    not_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a TLS handshake negotiated; the certificate is None unless it was verified."""

    version: str
    cipher: str
    alpn: str | None
    certificate: Certificate | None


class StageListener:
    """Hears of each stage of an attempt when it is complete; `took` is the duration of that stage alone, in seconds.

    The order is: `resolved`, `reached`, `tunnelled` (only through an HTTP proxy), `secured` (only with TLS), and
    `settled`. If a target has several addresses and one fails after it was reached, `passed_over` says that, followed
    by `reached` for the next. An exception ends the attempt.
    """

    def resolved(self, took: float, addresses: Sequence[Address]) -> None:
        """Hear of the target's addresses, in the order in which they are tried."""

    def reached(self, took: float, address: Address, failed: Mapping[Address, str]) -> None:
        """Hear of the address of the connected socket, and of those that failed before, with the reasons."""

    def tunnelled(self, took: float, answer: str) -> None:
        """Hear the first line of the HTTP proxy's answer: it has connected to the server."""

    def secured(self, took: float, security: Security) -> None:
        """Hear what the TLS handshake has negotiated, HTTP/2 for one."""

    def settled(self, took: float, settings: Mapping[str, int]) -> None:
        """Hear the values in the server's SETTINGS frame (CB-6); all other settings have HTTP/2's defaults."""

    def passed_over(self, took: float, address: Address, failure: Failure) -> None:
        """Hear of an address that failed after it was reached; the next one is tried."""


class NoSettings(Exception):  # noqa: N818 - named after what is missing
    """The cause of a `ConnectError` at the stage settings: the server hung up, or sent something else or nothing.

    Attributes:
        head: the first bytes received, if any.
        error: the socket error or the timeout that ended the attempt; None if one side closed the connection.
    """

    def __init__(self, head: bytes, error: BaseException | None) -> None:
        super().__init__(head, error)
        self.head = head
        self.error = error


class NoTunnel(Exception):  # noqa: N818
    """The cause of a `ConnectError` at the stage tcp: an HTTP proxy answered with `status`, or with no HTTP (0)."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WrongAlpn(Exception):  # noqa: N818
    """The cause of a `ConnectError` at the stage tls: TLS negotiated another protocol than HTTP/2, or none."""
