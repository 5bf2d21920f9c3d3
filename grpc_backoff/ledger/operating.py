"""Operating: what an operator asks a ledger, and does by hand (LG-5, LG-7, LG-8)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger import manual, queries
from grpc_backoff.ledger.errors import LedgerStateError, wrong_type
from grpc_backoff.ledger.preparing import Policies, check_bytes, check_size, target_of
from grpc_backoff.ledger.records import (
    WELL,
    Filter,
    Operation,
    OperationAttempt,
    OperationState,
    Queue,
    Readiness,
    is_storable,
)
from grpc_backoff.ledger.store import Store
from grpc_backoff.ledger.waking import Waking
from grpc_backoff.policy import checks
from grpc_backoff.policy.ledger_settings import LedgerSettings

_MANY = 1000
_PAGE = 20 * _MANY
"""How many ids are read at once, because each query for them may have to sort all that are left."""


class Operating:
    """The queries and the manual actions of a ledger, which `Ledger` inherits."""

    def __init__(self, store: Store, settings: LedgerSettings, policies: Policies) -> None:
        """Operate on an open store; `policies` say when operations are ready."""
        self.store = store
        self.settings = settings
        self._policies = policies
        self._waking = Waking(store)

    # Queries.

    async def get(self, id: str) -> Operation:  # noqa: A002
        """Return an operation; LedgerStateError if it does not exist."""
        found = await queries.find(self.store, Filter(ids=(checked(id),)), 1)
        if not found:
            raise LedgerStateError(f"there is no operation {id} in this ledger")
        return found[0]

    async def find(
        self, which: Filter | None = None, *, limit: int = _MANY, newest_first: bool = False, after: str | None = None
    ) -> list[Operation]:
        """Return operations, oldest first; `Filter(states=(OperationState.FAILED,))` selects those that have failed.

        Args:
            which: the operations to return; by default, all.
            limit: the maximum number of operations to return.
            newest_first: whether the newest operations come first.
            after: the id of the last operation of the previous page.
        """
        after = None if after is None else (await self.get(after)).id
        return await queries.find(self.store, _filter(which), _limit(limit), after=after, newest_first=newest_first)

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order, over all its series; LedgerStateError if `id` is not a UUID."""
        return await queries.attempts(self.store, checked(id))

    async def ready(self, which: Filter | None = None, *, limit: int = _MANY) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
        return await queries.ready(self.store, _filter(which), _limit(limit), self._policies.of_any)

    async def queue(self, target: str | None = None) -> Queue:
        """Return how many operations there are in each state, how many are unfinished, and the longest wait in seconds.

        Raises:
            OptionError: the target is not text, or contains NUL or a surrogate.
        """
        if target is not None and not is_storable(target):
            raise OptionError("target", target, "text without NUL and surrogates")
        return await queries.queue(self.store, target)

    async def queues(self) -> dict[str, Queue]:
        """Return what `queue` returns, for each target by its name."""
        return await queries.queues(self.store)

    async def pages(self, which: Filter) -> AsyncIterator[list[str]]:
        """Yield the ids of the operations that match a filter, in batches, oldest first, without their requests.

        Operations that are changed or submitted meanwhile are yielded at most once, so that failed operations can be
        replayed batch by batch; if that is interrupted, it can be run again.
        """
        which = _filter(which)
        ids, after = await queries.ids(self.store, which, _PAGE)
        while ids:
            for first in range(0, len(ids), _MANY):
                yield ids[first : first + _MANY]
            ids, after = await queries.ids(self.store, which, _PAGE, after)

    # Manual actions.

    async def pause(self, target: str) -> None:
        """Stop claiming operations for a target, in all processes, until `resume`; running attempts continue.

        Raises:
            LedgerSchemaError: the tables have not been upgraded yet (LG-18).
            OptionError: the target cannot be dialled.
        """
        await manual.pause(self.store, target_of(target))

    async def resume(self, target: str) -> bool:
        """End the pause of a target; return whether it was paused."""
        resumed = await manual.resume(self.store, target_of(target))
        self._waking.notify(bare_target(target))
        self._waking.wake(target)
        return resumed

    async def replay(self, *ids: str) -> list[str]:
        """Retry operations that failed or expired; return the ids of those that are retried.

        Their attempts are counted anew, their recorded attempts are kept, and they no longer expire (LG-17).
        """
        states = [OperationState.FAILED, OperationState.EXPIRED]
        retried = await manual.begin_anew(self.store, [*map(checked, ids)], states, None)
        self._waking.wake_deliveries()
        return retried

    async def resolve(self, id: str, *, request: bytes | None = None) -> None:  # noqa: A002
        """Resolve a conflict: the operation is retried, with a new request if one is given.

        Raises:
            LedgerStateError: the operation is not in conflict.
            LedgerLimitError: request and metadata are larger than `max_request_bytes` (LG-11).
        """
        if request is not None:
            check_bytes(request)
            check_size(request, (await self.get(id)).metadata, self.settings.max_request_bytes)
        if not await manual.begin_anew(self.store, [checked(id)], [OperationState.CONFLICT], request):
            raise LedgerStateError(f"operation {id} is {(await self.get(id)).state.value}, not in conflict")
        self._waking.wake_deliveries()

    async def retarget(self, old: str, new: str) -> int:
        """Move operations to another target, for example after a server was renamed; return how many were moved.

        Operations that succeeded, expired or were discarded stay as they are. So does an operation if the new target
        has one with the same method and idempotency key.

        Raises:
            OptionError: a target cannot be dialled.
        """
        moved, some = 0, _MANY
        while some == _MANY:
            some = await manual.retarget(self.store, target_of(old), target_of(new), _MANY)
            moved += some
        self._waking.notify(bare_target(new))
        self._waking.wake(new)
        return moved

    async def discard(self, *ids: str) -> list[str]:
        """Discard operations that have not succeeded; return the ids of those that were discarded."""
        return await manual.discard(self.store, [*map(checked, ids)])

    async def prune(self, older_than: float | None = None, *, failed: bool = False) -> int:
        """Delete operations that succeeded, expired or were discarded more than `older_than` seconds ago.

        Return how many. The default is the setting `keep`. Failed operations and conflicts are deleted only with
        `failed=True`.

        Raises:
            OptionError: `older_than` is not a finite, non-negative number of seconds.
        """
        states = [*WELL, *([OperationState.FAILED, OperationState.CONFLICT] if failed else [])]
        keep = self.settings.keep if older_than is None else checks.pause("older_than", older_than)
        pruned, some = 0, _MANY
        while some == _MANY:
            some = await manual.prune(self.store, keep, states, _MANY)
            pruned += some
        return pruned


def _filter(which: object) -> Filter:
    """Check a filter; None selects all operations."""
    if which is not None and not isinstance(which, Filter):
        raise TypeError(wrong_type("which", which, "a Filter"))
    return which or Filter()


def _limit(limit: object) -> int:
    """Check how many operations are wanted; more than any database has are as good as all."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise OptionError("limit", limit, "a whole number of at least 0")
    return min(limit, 2**31 - 1)


def checked(id_: str) -> str:
    """Return an operation's id in canonical form; LedgerStateError if it is not an id."""
    try:
        return str(uuid.UUID(id_))
    except (ValueError, AttributeError, TypeError):
        raise LedgerStateError(f"id={id_!r}: expected an operation id (a UUID)") from None
