"""Frozen records of what each stage of an attempt found, for callers that want more than the outcome.

A connector that observes the stages reports them as they complete, in this order: `Resolved`, `Reached`, `Tunnelled`
(only through an HTTP proxy), `Secured` (only with TLS), and `Settled`. If a target has several addresses and one fails
after it was reached, `PassedOver` reports that, followed by `Reached` for the next. `took` is the duration of one stage
alone, in seconds.
"""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The target's addresses have been resolved; `addresses` has them in the order in which they are tried."""

    took: float
    addresses: Sequence[Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A socket is connected to `address`; `failed` has the addresses that failed before, with the reasons."""

    took: float
    address: Address
    failed: Mapping[Address, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnelled:
    """The HTTP proxy has connected to the server; `answer` is the first line of its answer."""

    took: float
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The TLS handshake is complete and has negotiated HTTP/2."""

    took: float
    security: Security


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The server's SETTINGS frame has arrived (CB-6) with these values; all other settings have HTTP/2's defaults."""

    took: float
    settings: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """An address failed after it was reached, and the next one is tried."""

    took: float
    address: Address
    failure: Failure


StageRecord = Resolved | Reached | Tunnelled | Secured | Settled | PassedOver


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
