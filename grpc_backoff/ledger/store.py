"""What all of a ledger's databases have in common: everything but how statements are executed.

A store for a database runs transactions and says in its `Dialect` how the database writes times and locks; see
`sqlite` and `postgres`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Coroutine, Sequence

from grpc_backoff.ledger.claiming import Claiming
from grpc_backoff.ledger.counting import Counting
from grpc_backoff.ledger.database import Database
from grpc_backoff.ledger.manual import Manual
from grpc_backoff.ledger.order_keys import OrderKeys
from grpc_backoff.ledger.queries import Queries
from grpc_backoff.ledger.recording import Recording
from grpc_backoff.ledger.records import Submission, Submitted
from grpc_backoff.ledger.submitting import Submitting
from grpc_backoff.policy.ledger_settings import LedgerSettings


class Store(Database):
    """A database that contains a ledger. Times are in seconds since the epoch, on the database's own clock (LG-12).

    Each method of its parts is one transaction, which is complete when the method returns. If the method raises a
    `LedgerError`, the error says what happened to the data.
    """

    hears = False
    """Whether the store listens, so that operations of other processes need not be looked for."""

    def __init__(self, name: str, settings: LedgerSettings) -> None:
        super().__init__(name, settings)
        self.order_keys = OrderKeys(self)
        self.submitting = Submitting(self)
        self.claiming = Claiming(self, self.order_keys)
        self.recording = Recording(self, self.order_keys)
        self.queries = Queries(self)
        self.counting = Counting(self)
        self.manual = Manual(self, self.order_keys)

    @abc.abstractmethod
    async def migrate(self, *, apply: bool, needed_only: bool = False) -> tuple[int, int]:
        """Bring the tables to this library's version; return the versions before and after (LG-13).

        With `needed_only`, tables that can be used as they are stay so (LG-18). With `apply=False` nothing is changed,
        and older tables than these raise LedgerSchemaError as well.
        """

    @abc.abstractmethod
    def submit_within(
        self, connection: object, submissions: Sequence[Submission]
    ) -> list[Submitted] | Coroutine[object, object, list[Submitted]]:
        """Store operations in the caller's own transaction; the result may be awaitable (LG-9)."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Release the database."""

    async def notify(self, target: str) -> None:
        """Wake the deliverers of a target in other processes, if the database supports that (LG-12)."""

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the target of each notification, from now until `close`, if there are any (LG-12)."""

    async def look(self, target: str) -> None:
        """Find where claims for a target may begin, if the database must otherwise step over what has ended."""

    async def sweep(self) -> bool:
        """Remove what updates leave behind, if that is much and the database does not do so at once.

        Return whether much remains, because a transaction of someone else may still see it.
        """
        return False
