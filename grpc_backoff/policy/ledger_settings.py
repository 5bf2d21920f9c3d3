"""A ledger's limits and times, as one frozen value (LG-14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.setting import Setting, checks_of, defaults_of

_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "x-goog-api-key"})
"""Metadata keys that always hold credentials, which a ledger must never store (LG-11)."""

_RESERVED = "grpc-"
"""What keys begin with that belong to gRPC. Its core removes or overwrites them."""
_OVERWRITTEN = frozenset({"te", "host", "content-type", "user-agent", "connection", "idempotency-key"})
"""Keys that belong to HTTP/2, or that the ledger itself sends with each attempt."""


def _name(key: str, value: object, _unit: Unit = Unit.SECONDS) -> str:
    if isinstance(value, str) and value:
        return value
    raise OptionError(key, value, "the name of a policy, or a policy string")


_count = checks.whole(1)


def _metadata(key: str, value: object, _unit: Unit = Unit.SECONDS) -> tuple[str, ...]:
    names = value.split() if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise OptionError(key, value, "a list of metadata keys")
    for name in names:
        wanted = unstorable(name)
        if wanted is not None:
            raise OptionError(key, name, wanted)
    return tuple(names)


def unstorable(name: object) -> str | None:
    """Return what is expected instead of a metadata key that no settings can allow; None if they can (LG-11)."""
    if not isinstance(name, str) or not re.fullmatch(checks.METADATA_KEY, name):
        return "a metadata key made up of lower-case letters, digits, '-', '_' and '.'"
    if name.startswith(_RESERVED) or name in _OVERWRITTEN:
        return "a key that reaches the server, unlike those of gRPC and HTTP/2 themselves"
    if name in _SECRET:
        return "a key that does not hold credentials, which are never stored; the channel that delivers can send them"
    return None


def _method_counts(key: str, value: object, _unit: Unit = Unit.SECONDS) -> tuple[tuple[str, int], ...]:
    try:
        table = None if isinstance(value, str | bytes) else dict(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        table = None
    if table is None or not all(isinstance(name, str) for name in table):
        raise OptionError(key, value, 'a table such as { "shop.Orders/Place" = 2 }')
    return tuple((f"/{name.removeprefix('/')}", _count(f"{key}.{name}", number)) for name, number in table.items())


KEEPING = (
    Setting("policy", _name, "durable"),
    Setting("methods", checks.flag, default=False),
    Setting("lock_timeout", checks.duration, 5.0),
    Setting("timeout", checks.duration, 10.0),
    Setting("lease", checks.duration, 30.0),
    Setting("attempt_timeout", checks.duration, 30.0),
    Setting("poll", checks.duration, 1.0),
    Setting("keep", checks.duration, 7 * 86_400.0),
    Setting("grace", checks.pause, 10.0),
    Setting("concurrency", _count, 16),
    Setting("method_concurrency", _method_counts, ()),
    Setting("max_rows", _count, 1_000_000),
    Setting("max_request_bytes", _count, 1024 * 1024),
    Setting("metadata", _metadata, ()),
)
"""All settings for a ledger, for values from the file and from Python (LG-14)."""

LEDGER: Mapping[str, object] = MappingProxyType(defaults_of(KEEPING))
"""The default limits and times for a ledger, by the field names of `LedgerSettings` (LG-14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
@checks.checked(checks_of(KEEPING))
class LedgerSettings:
    """A ledger's limits and times. Times are in seconds; the file's table `[ledger]` uses the same names.

    Attributes:
        policy: the retry policy for operations that get none from `submit` or `[methods]`: a name or a policy string.
        methods: whether the policies in the file's `[methods]`, which are meant for calls, apply to operations as well.
        lock_timeout: how long to wait for a lock before raising `LedgerBusyError` (LG-2).
        timeout: how long one request to PostgreSQL may take in total; SQLite does not use it.
        lease: how long a claimed operation belongs to its deliverer, unless the lease is extended (LG-6).
        attempt_timeout: the time limit of an attempt if the policy has no `timeout`.
        poll: how often the database is polled when nothing wakes a deliverer (LG-12).
        keep: how long succeeded, discarded and expired operations are kept (LG-11).
        grace: how long running attempts may continue when a delivery stops (LG-10).
        concurrency: how many attempts one delivery makes at a time.
        method_concurrency: how many of them may be of one method, for each method that has a limit of its own.
        max_rows: how many operations may be waiting; `submit` raises `LedgerLimitError` beyond that (LG-11).
        max_request_bytes: the maximum size of one request, including its metadata (LG-11).
        metadata: the metadata keys that may be stored with an operation (LG-11).
    """

    policy: str
    methods: bool
    lock_timeout: float
    timeout: float
    lease: float
    attempt_timeout: float
    poll: float
    keep: float
    grace: float
    concurrency: int
    method_concurrency: tuple[tuple[str, int], ...]
    max_rows: int
    max_request_bytes: int
    metadata: tuple[str, ...]
