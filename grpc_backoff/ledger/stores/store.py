"""What all of a ledger's databases have in common."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import ClassVar

from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerSchemaError, LedgerStateError, LedgerUnavailableError
from grpc_backoff.ledger.operation import WELL, OperationState
from grpc_backoff.ledger.records import is_storable
from grpc_backoff.ledger.stores.dialect import Dialect
from grpc_backoff.ledger.stores.rows import ADDED, COLUMNS
from grpc_backoff.ledger.stores.statements import Access, Plan, ResultT, Row, Statement, one, texts
from grpc_backoff.policy.ledger_settings import LedgerSettings

SOON = 0.5
"""The share of the setting `timeout` that is allowed for requests that deliverers repeat anyway."""
LONG_AGO = 1e10
"""An age in seconds that no operation has, and that every database can subtract from the time."""
_OPEN = texts(set(OperationState) - WELL)
_NONE_PAUSED = "(SELECT CAST(NULL AS text) AS target WHERE false)"


class Store(abc.ABC):
    """A database that contains a ledger. Times are in seconds since the epoch, on the database's own clock (LG-12).

    Attributes:
        sql: what the database writes in its own way.
        oldest: the oldest version of the tables that can be used without an upgrade: that of 0.2.0 (LG-18).
        waiting: how many seconds pass at most until a waiter looks again for an outcome.
        of_rows: the errors that are about one row, so that the others are recorded without it.
        floors: by target, the time before which nothing was due that may still be claimed.
        unrecordable: the operations of which a lost attempt cannot be recorded.
        hears: whether the store listens, so that operations of other processes need not be looked for.
    """

    sql: ClassVar[Dialect]
    oldest: ClassVar[int]
    waiting: ClassVar[float]
    of_rows: ClassVar[tuple[type[LedgerStateError | LedgerBusyError], ...]] = (LedgerStateError,)
    hears = False

    def __init__(self, name: str, settings: LedgerSettings) -> None:
        """Remember which process opens the database; `name` is the database's name in errors."""
        self._name = name
        self._settings = settings
        self._closed = False
        self._process = os.getpid()
        self._version = 0  # of the tables, when they were last looked at
        self.floors: dict[str, float] = {}
        self.unrecordable: set[str] = set()

    async def run(self, plan: Callable[[], Plan[ResultT]], access: Access, share: float = 1.0) -> ResultT:
        """Run a plan in one transaction; `share` is the part of the setting `timeout` that it may take."""
        try:
            return await self._transact(plan, access, share)
        except LedgerUnavailableError as error:
            error.reading = access is Access.READ
            raise

    @abc.abstractmethod
    async def _transact(self, plan: Callable[[], Plan[ResultT]], access: Access, share: float) -> ResultT:
        """Do what `run` does; the error of a read need not say so."""

    @abc.abstractmethod
    def table(self, columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, dict[str, object]]:
        """Return a query that returns these rows, and its parameters."""

    async def rows(
        self, text: str, params: Mapping[str, object], access: Access = Access.STATEMENT, share: float = 1.0
    ) -> list[Row]:
        """Run one statement in a transaction of its own; return its rows."""
        return await self.run(lambda: one(Statement(text, params)), access, share)

    def column(self, values: Collection[str], name: str = "id") -> tuple[str, dict[str, object]]:
        """Return a query that returns these values in one column, and its parameters."""
        return self.table((name,), [(value,) for value in values])

    def with_rows(self, columns: Sequence[str], rows: Sequence[Row], text: str, *, answers: bool = True) -> Statement:
        """Return a statement in whose text these rows are the table `r`."""
        table, params = self.table(columns, rows)
        return Statement(f"WITH r ({', '.join(columns)}) AS ({table}) {text}", params, answers)

    def possible(self, ids: Sequence[str]) -> Sequence[str]:
        """Return those of some ids that an operation can have."""
        return [id_ for id_ in ids if is_storable(id_)]

    def typed(self, new: str) -> str:
        """Return a list of parameters with their types, which some databases need in a SELECT."""
        return new

    def times(self) -> dict[str, float]:
        """Return the parameters of statements that stand for the time, if the database has no clock of its own."""
        return {}

    def from_floor(self, target: str) -> tuple[str, dict[str, object]]:
        """Return the condition that an operation `o` of a target is open, as an index finds it, and its parameters."""
        text = f"{self.open('o')} AND o.target = :target AND {self.due} >= {self.sql.at.format(':floor')}"
        return text, {"target": target, "floor": self.floors.get(target, -math.inf)}

    def became_due_earlier(self) -> None:
        """Let claims begin anywhere, because operations may be due before the floors."""
        self.floors = {}  # a new one, so that a search that began before does not count

    @abc.abstractmethod
    async def migrate(self, *, apply: bool, needed_only: bool = False) -> tuple[int, int]:
        """Bring the tables to this library's version; return the versions before and after (LG-13).

        With `needed_only`, tables that can be used as they are stay so (LG-18). With `apply=False` nothing is changed,
        and older tables than these raise LedgerSchemaError as well.
        """

    @abc.abstractmethod
    def run_within(
        self, connection: object, plan: Callable[[], Plan[ResultT]], *, blocking: bool
    ) -> ResultT | Coroutine[object, object, ResultT]:
        """Run a plan in the caller's own transaction, as a whole or not at all; the result may be awaitable (LG-9).

        With `blocking`, it is not, unless the connection is one for asyncio.

        Raises:
            OptionError: it is a connection to another database, or has no transaction.
            TypeError: it is not a connection of the database's driver.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Release the database."""

    async def notify(self, target: str) -> None:
        """Wake the deliverers of a target in other processes, if the database can (LG-12)."""
        if self.sql.notify:
            await self.rows(self.sql.notify, {"target": target}, Access.READ)

    def listen(self, heard: Callable[[str], None]) -> None:  # noqa: B027 - not every database can
        """Call `heard` with the target of each notification, from now until `close`, if there are any (LG-12)."""

    async def sweep(self) -> bool:
        """Remove what updates leave behind, if that is much and the database does not do so at once.

        Return whether much remains, because a transaction of someone else may still see it.
        """
        return False

    # The tables of earlier versions are used as they are (LG-18).

    @property
    def is_oldest(self) -> bool:
        """Whether the tables lack pauses, the columns `ADDED` and those for indexes."""
        return self._version == self.oldest

    @property
    def due(self) -> str:
        """The SQL for when an operation `o` may be claimed or its lease expires."""
        return "o.next_attempt_at" if self.is_oldest else "o.due"  # with another index for leases

    def open(self, row: str) -> str:
        """Return the SQL for whether anything remains to be done for an operation."""
        return f"({row}.state IN ({_OPEN}))" if self.is_oldest else f"{row}.open"

    def order_key(self, row: str) -> str:
        """Return the SQL for the order key of an operation."""
        return "CAST(NULL AS text)" if self.is_oldest else f"{row}.order_key"

    def behind(self) -> str:
        """Return the SQL for whether an operation `o` is behind another of its order key that has not ended well."""
        return (
            f"EXISTS (SELECT 1 FROM {self.sql.operations} p WHERE p.target = o.target "
            f"AND {self.order_key('p')} = {self.order_key('o')} AND p.seq < o.seq AND {self.open('p')})"
        )

    def blocked(self) -> str:
        """Return the SQL for whether another operation of its order key is in the way of an operation `o`.

        That is one before it, or a later one that went on when `o` expired and is still in progress. Only what begins
        anew looks for the latter, because a key may have many rows.
        """
        return (
            f"({self.behind()} OR o.attempts = 0 AND o.began <> o.created "
            f"AND EXISTS (SELECT 1 FROM {self.sql.operations} p WHERE p.target = o.target "
            f"AND {self.order_key('p')} = {self.order_key('o')} AND p.seq > o.seq AND {self.open('p')} "
            "AND p.state = 'in_progress'))"
        )

    @property
    def paused_targets(self) -> str:
        """The rows of the table `pauses`, as far as there is one."""
        return _NONE_PAUSED if self.is_oldest else self.sql.pauses

    def look_at_version(self) -> Plan[bool]:
        """Look whether the tables are still the oldest ones; another process may have migrated meanwhile."""
        if self.is_oldest:
            [(self._version,)] = yield from one(Statement(f"SELECT version FROM {self.sql.versions}", {}))
        return self.is_oldest

    async def still_oldest(self) -> bool:
        """Do the same in a transaction of its own, if necessary; return whether they are."""
        return self.is_oldest and await self.run(self.look_at_version, Access.READ, SOON)

    def check_tables(self, what: str) -> None:
        """Refuse what the oldest tables have no place for."""
        if self.is_oldest:
            raise LedgerSchemaError(
                f"{self._name}: {what} needs version {self._version + 1} of the tables, which have version "
                f"{self._version}; nothing was stored; when no process of an older release is left, call `migrate()` "
                "or run `grpc-backoff ledger --db URL migrate`"
            )

    @property
    def operation(self) -> str:
        """The columns of an operation, as far as the tables have them."""
        return ", ".join("NULL" if self.is_oldest and name in ADDED else name for name in COLUMNS)

    def _check_usable(self) -> None:
        if self._closed:
            raise LedgerUnavailableError(f"{self._name}: the ledger is closed")
        check_process(self._name, self._process)


def spellings(target: str) -> tuple[str, str, str]:
    """Return the spellings of a target, first the one that is stored; previous versions stored what they were given."""
    bare = bare_target(target)
    return bare, f"dns:///{bare}", f"dns:{bare}"


def check_process(where: str, opener: int) -> None:
    """Reject the child of a fork: SQLite's thread does not exist there, and the parent also uses any connection."""
    if os.getpid() != opener:
        raise LedgerUnavailableError(f"{where}: the ledger was opened before a fork; open one in each process")
