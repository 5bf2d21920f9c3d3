"""Frozen records of what each stage of an attempt found, for whoever wants to see more than the outcome.

A connector that sees the stages hands them out as they pass, in this order: `Resolved`, `Reached`, with TLS `Secured`,
and `Settled`. Where a target has several addresses and one of them fails after it was reached, `PassedOver` says so,
and it goes on with `Reached` for the next. `took` is each stage's own part of the time, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from grpc_backoff.config.target import Address
from grpc_backoff.connection.events import Failure

__all__ = [
    "Certificate",
    "NoSettings",
    "PassedOver",
    "Reached",
    "Resolved",
    "Secured",
    "Security",
    "Settled",
    "StageRecord",
    "WrongAlpn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A server's certificate: whom it is for, who says so, and from when to when; None for a moment that is none."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime | None
    not_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a TLS handshake agreed on; the certificate is None unless it was verified."""

    version: str
    cipher: str
    alpn: str | None
    certificate: Certificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The target's addresses are known, in the order in which they are tried."""

    took: float
    addresses: Sequence[Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A socket is connected to one of them; `failed` are those that had failed before, with the reason."""

    took: float
    address: Address
    failed: Mapping[Address, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The TLS handshake is over, and agreed on HTTP/2."""

    took: float
    security: Security


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The server's SETTINGS frame is there (CB-6), and says this; what it does not say has HTTP/2's default."""

    took: float
    settings: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """An address failed after it was reached, and there is another."""

    took: float
    address: Address
    failure: Failure


StageRecord = Resolved | Reached | Secured | Settled | PassedOver


class NoSettings(Exception):  # noqa: N818 - what it says is the name
    """The cause of a `ConnectError` at the stage settings: the server hung up, said something else, or nothing.

    Attributes:
        head: the first bytes that came, if any.
        error: the socket's error that ended it, or the passing of the limit; None where one side closed it.
    """

    def __init__(self, head: bytes, error: BaseException | None) -> None:
        """Keep both."""
        super().__init__(head, error)
        self.head = head
        self.error = error


class WrongAlpn(Exception):  # noqa: N818
    """The cause of a `ConnectError` at the stage tls: the handshake agreed on `selected`, or on nothing."""

    def __init__(self, selected: str | None) -> None:
        """Keep what was agreed on."""
        super().__init__(selected)
        self.selected = selected
