"""The server's side of a ledger: an interceptor that executes each call with an `idempotency-key` once.

`AioInbox` is for `grpc.aio.server`, `SyncInbox` for `grpc.server`. Both use PostgreSQL, which needs the extra
`postgres`, or SQLite.

Internal: programs import from `grpc_backoff.ledger.inbox`.
"""

from __future__ import annotations

from grpc_backoff.ledger.inbox.aio import AioInbox
from grpc_backoff.ledger.inbox.handling import connection
from grpc_backoff.ledger.inbox.sync import SyncInbox

__all__ = ["AioInbox", "SyncInbox", "connection"]
