"""What an inbox decides about a call: execute it, answer it from the record, let it wait, or refuse it.

Everything here is pure. `InboxEntry.steps` is one transaction, as a generator: it yields statements and `HANDLE` and
receives rows and the handler's response. The shells for both APIs run it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Any, Final

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.ledger.operation import IDEMPOTENCY_KEY, LONGEST_KEY
from grpc_backoff.ledger.stores.statements import Row


class Refused(Exception):  # noqa: N818 - not an error of the program
    """Ends a call that is neither executed nor answered from the record, with the name of a status and details."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(code, details)
        self.code, self.details = code, details


class NotRecorded(Exception):  # noqa: N818 - not an error of the program
    """Ends the transaction of a call whose handler set an error status, so that it is rolled back."""


class Busy(Exception):  # noqa: N818 - not an error of the program
    """Says that another call of this process holds the database."""


class Trouble(enum.Enum):
    """What an error of the database means."""

    BUSY = "another transaction holds what this one needs, or the database asks for this one to be repeated"
    UNAVAILABLE = "the database cannot be used now, or did not answer"
    READ_ONLY = "the server takes no writes, as a standby does"
    OTHER = "repeating does not help"


class InboxStage(enum.Enum):
    """How far a call has come."""

    CLAIMING = "until it is known whether the key is new"
    HANDLING = "while the handler runs"
    RECORDING = "from the handler's return to the end of COMMIT"


class Query(NamedTuple):
    """A statement and its parameters."""

    text: str
    params: tuple[object, ...] = ()


HANDLE: Final = None
"""The step in which the handler runs."""
PRUNED = 10_000
"""How many rows one statement deletes, so that none runs for long."""
Steps = Generator[Query | None, Any, bytes]
Execute = Callable[[Query], Sequence[Row]]
"""Executes a statement and returns its rows."""
AioExecute = Callable[[Query], Awaitable[Sequence[Row]]]


def read_key(
    metadata: Sequence[tuple[str, str | bytes]], method: str, required: bool | Collection[str]
) -> str | Refused | None:
    """Return the key of a call, or its refusal; None if it has none and needs none."""
    keys = [value for key, value in metadata if key == IDEMPOTENCY_KEY]
    if not keys:
        needed = required if isinstance(required, bool) else method in required
        return Refused("INVALID_ARGUMENT", f"expected the metadata {IDEMPOTENCY_KEY}") if needed else None
    [key, *others] = keys
    if others:
        return Refused("INVALID_ARGUMENT", f"expected the metadata {IDEMPOTENCY_KEY} once, got {len(keys)} values")
    if not isinstance(key, str) or not (key.isascii() and key.isprintable() and 0 < len(key) <= LONGEST_KEY):
        return Refused("INVALID_ARGUMENT", f"{IDEMPOTENCY_KEY}: expected 1 to {LONGEST_KEY} printable ASCII characters")
    return key


class Statements:
    """The statements of an inbox's table, as one database writes them.

    Attributes:
        claim: inserts a row and returns it; returns no row if the key is taken. It waits for a transaction that is
            inserting the same key.
        claimed: ends the limit on the claim's wait, before the handler runs; empty if there is none.
        find: returns the digest and the response of a key.
        finish: stores a response.
        prune: deletes up to `PRUNED` rows that are older than a number of seconds.
    """

    def __init__(self, table: str, mark: str, before: str, claimed: str = "") -> None:
        """Write them with this mark for a parameter; `before` is the time a number of seconds ago."""
        identity = f"scope = {mark} AND method = {mark} AND key = {mark}"
        self.claim = (
            f"INSERT INTO {table} (scope, method, key, digest) VALUES ({mark}, {mark}, {mark}, {mark}) "
            "ON CONFLICT DO NOTHING RETURNING 1"
        )
        self.claimed = claimed
        self.find = f"SELECT digest, response FROM {table} WHERE {identity}"
        self.finish = f"UPDATE {table} SET response = {mark} WHERE {identity} RETURNING 1"
        self.prune = (
            f"DELETE FROM {table} WHERE (scope, method, key) IN (SELECT scope, method, key FROM {table} "
            f"WHERE recorded < {before} ORDER BY recorded LIMIT {PRUNED})"
        )


class InboxEntry:
    """One call on its way through the inbox, and how far it has come."""

    def __init__(self, sql: Statements, scope: str, method: str, key: str, request: bytes) -> None:
        """Prepare a call; of the request, only a digest is kept."""
        self.stage = InboxStage.CLAIMING
        self._sql = sql
        self._identity = (scope, method, key)
        self._digest = hashlib.sha256(request).digest()

    def steps(self) -> Steps:
        """Yield the steps of one transaction; return the response.

        `HANDLE` is answered with the handler's response, or with None if the handler set an error status.

        Raises:
            Refused: the call is refused.
            NotRecorded: the handler set an error status.
        """
        self.stage = InboxStage.CLAIMING
        while not (yield Query(self._sql.claim, (*self._identity, self._digest))):
            found = yield Query(self._sql.find, self._identity)
            if found:
                return self._recorded(*found[0])
            # The row was pruned after the claim, so claim again.
        if self._sql.claimed:
            yield Query(self._sql.claimed)
        self.stage = InboxStage.HANDLING
        response: bytes | None = yield HANDLE
        if response is None:
            raise NotRecorded
        self.stage = InboxStage.RECORDING
        if not (yield Query(self._sql.finish, (response, *self._identity))):
            raise Refused("INTERNAL", "the handler ended the inbox's transaction")
        return response

    def _recorded(self, digest: bytes, response: bytes | None) -> bytes:
        if bytes(digest) != self._digest:
            raise Refused("ALREADY_EXISTS", f"another request has the same {IDEMPOTENCY_KEY}")
        if response is None:
            raise Refused("INTERNAL", "the handler ended the transaction, so the response is unknown")
        return bytes(response)

    def after(self, error: Exception, trouble: Trouble, *, late: bool) -> Exception | None:
        """Return what to raise after an error of the database, or None to begin again; the handler keeps its own error.

        `late` says that the call has waited long enough.

        A repeated call finds out what happened, so whatever repeating can mend is UNAVAILABLE, also when the answer to
        COMMIT is lost.
        """
        match self.stage, trouble:
            case InboxStage.CLAIMING, Trouble.BUSY if not late:
                return None
            case InboxStage.CLAIMING, Trouble.BUSY:
                details = f"another call holds this {IDEMPOTENCY_KEY} or the database; repeat later"
            case _, Trouble.READ_ONLY:
                details = f"the database is read-only; repeat this call with the same {IDEMPOTENCY_KEY}"
            case InboxStage.HANDLING, Trouble.OTHER:
                return error
            case _, Trouble.OTHER:
                return Refused("INTERNAL", "the database rejected the transaction; nothing was recorded")
            case _:
                details = f"the database did not answer; repeat this call with the same {IDEMPOTENCY_KEY}"
        return Refused("UNAVAILABLE", details)
