"""The asyncio API for a ledger of operations that outlive the process. `delivery` makes the attempts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Self, Unpack

import grpc
import grpc.aio

from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.process import CHANCE
from grpc_backoff.config.channel_settings import check_kind
from grpc_backoff.config.channel_setup import read_listeners
from grpc_backoff.config.file import Config, read_config, resolve_ledger
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.target import bare_target
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import arguments
from grpc_backoff.ledger.delivery.announcing import Announcer
from grpc_backoff.ledger.delivery.calling import cut
from grpc_backoff.ledger.delivery.delivery import Delivery
from grpc_backoff.ledger.delivery.waking import Waking
from grpc_backoff.ledger.errors import LedgerStateError, LedgerUnavailableError, wrong_type
from grpc_backoff.ledger.operation import FINISHED, WELL, Operation, OperationAttempt, OperationOutcome, OperationState
from grpc_backoff.ledger.operation_events import LedgerHooks, Listener
from grpc_backoff.ledger.policies import Policies
from grpc_backoff.ledger.records import (
    AttemptReport,
    Filter,
    Queue,
    Readiness,
    Recorded,
    Submission,
    SubmitOptions,
    Submitted,
    is_storable,
)
from grpc_backoff.ledger.stores.statements import BATCH, ParameterStyle, batches
from grpc_backoff.ledger.stores.store import Store, check_process
from grpc_backoff.ledger.stores.urls import open_store, read_url
from grpc_backoff.ledger.transactions import counting, manual, queries, recording, submitting
from grpc_backoff.policy import checks
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.ledger_settings import LedgerSettings
from grpc_backoff.policy.setting import ENVIRONMENT_VARIABLE

_PAGE = 20 * BATCH
"""How many ids are read at once, because each query for them may have to sort all that are left."""


class Ledger:
    """Operations in a database, which some processes submit and the same or other processes deliver.

    ::

        ledger = await Ledger.open("orders.db")
        await ledger.submit(stub.Place, order, idempotency_key=order.id)
        await ledger.deliver(channel)

    Delivery is at least once: the server receives an `idempotency-key` with each attempt and must deduplicate by it.

    Attributes:
        store: the database.
        settings: the limits and times of the ledger.
        hooks: the functions that deliverers call.
        owner: the name of this process in leases.
        rng: the source of jitter.
    """

    def __init__(
        self,
        store: Store,
        settings: LedgerSettings,
        *,
        config: Config | None = None,
        hooks: LedgerHooks | None = None,
        listeners: Iterable[Listener] = (),
        rng: Random | None = None,
    ) -> None:
        """Create a ledger on an open store; use `open` instead."""
        if hooks is not None and not isinstance(hooks, LedgerHooks):
            raise OptionError("hooks", hooks, "a LedgerHooks object")
        if rng is not None:
            check_kind("rng", rng, "a source of random numbers, such as random.Random()", "random")
        self.store = store
        self.settings = settings
        self._policies = Policies(settings, config)
        self._waking = Waking(store)
        self.hooks = hooks or LedgerHooks()
        self.rng: Random = CHANCE if rng is None else rng
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._by_default = config is None
        self._announcer = Announcer(lambda: self.hooks, read_listeners(listeners), self._waking.ended)
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._process = os.getpid()
        self._limit = counting.RowLimit(store, settings.max_rows)

    @classmethod
    async def open(
        cls,
        url: str | os.PathLike[str],
        *,
        config: str | os.PathLike[str] | Config | None = None,
        settings: LedgerSettings | None = None,
        hooks: LedgerHooks | None = None,
        listeners: Iterable[Listener] = (),
        rng: Random | None = None,
        migrate: bool = True,
    ) -> Self:
        """Open a database, and create its tables if there are none.

        Args:
            url: the path of an SQLite file, which is created if necessary, or a `postgresql://` URL.
            config: the TOML file, or its parsed content; by default, the file named by `GRPC_BACKOFF_CONFIG`.
            settings: limits and times that replace the file's.
            hooks: the functions that deliverers call.
            listeners: functions that are called with every `OperationEvent`.
            rng: the source of jitter; by default the operating system's.
            migrate: whether tables are created, and upgraded if this release cannot use them; if False, those are
                rejected. The tables of the version before are used as they are until `migrate` is called (LG-18).

        Raises:
            LedgerUnavailableError: the database cannot be opened.
            LedgerSchemaError: the tables are newer than this library, or older with `migrate=False` (LG-13).
            grpc_backoff.ConfigError: the file cannot be read or has an invalid value.
            OptionError: the settings' policy is unknown, or an argument has an invalid value.
            TypeError: an argument has another type.
        """
        text = read_url(url)
        if config is not None and not isinstance(config, str | os.PathLike | Config):
            raise TypeError(wrong_type("config", config, "a path, or a parsed file"))
        if settings is not None and not isinstance(settings, LedgerSettings):
            raise TypeError(wrong_type("settings", settings, "a LedgerSettings object"))
        named = config if config is not None else os.environ.get(ENVIRONMENT_VARIABLE) or None
        read = named if isinstance(named, Config) or named is None else read_config(named)
        chosen = settings or (read.ledger_settings() if read else resolve_ledger([], {})).policy
        store = open_store(text, chosen)
        ledger = cls(store, chosen, config=read, hooks=hooks, listeners=listeners, rng=rng)
        ledger._by_default = settings is None and read is None
        try:
            ledger._policies.warn_of(chosen.policy)
            await store.migrate(apply=migrate, needed_only=True)
        except BaseException:
            await store.close()
            raise
        return ledger

    async def migrate(self) -> tuple[int, int]:
        """Bring the tables to this release's version; return the versions before and after (LG-18).

        Call it when no process of an older release is left. Until then, what the tables lack is refused.

        Raises:
            LedgerBusyError: a lock was not acquired within `lock_timeout`; nothing was changed.
        """
        return await self.store.migrate(apply=True)

    async def __aenter__(self) -> Self:
        """Return the ledger."""
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Close the ledger."""
        await self.close()

    async def close(self) -> None:
        """Stop this process's deliveries within their grace period, give back their operations, and close the database.

        This also waits for cancelled deliveries that are still winding up. If the caller is cancelled, it goes on, and
        another `close` waits for it. In the child of a fork, nothing is stopped, because everything belongs to the
        parent.
        """
        self._closed = True
        if os.getpid() != self._process:
            await self.store.close()
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._wind_up())
        await asyncio.shield(self._closing)

    async def _wind_up(self) -> None:
        ending = {delivery.end() for delivery in self._waking.deliveries}
        if self._waking.notifier is not None:
            ending.add(self._waking.notifier)
        if ending:
            await asyncio.wait(ending)
        await self.store.close()

    # Submitting.

    async def submit(
        self, call: object, *request: object, within: object = None, **options: Unpack[SubmitOptions]
    ) -> Submitted:
        """Store an operation; it is durable when this returns (LG-9).

        Call it either as `submit(stub.Place, order)`, with a unary-unary method of a stub on one of this library's
        channels, or as `submit(target, method, request)`, with serialized bytes.

        Args:
            call: the stub's method, or the target.
            request: the request; or the method's path and the serialized request.
            within: a database connection; the insert becomes part of its current transaction, so if that is rolled
                back, nothing is submitted. Pass a psycopg connection, sync or async, or a sqlite3 connection, to match
                the ledger's database. With a sqlite3 connection, the insert blocks the event loop, and so does waiting
                for the lock, up to the connection's own busy timeout.
            **options: the parts of the operation, which `SubmitOptions` describes.

        Raises:
            OptionError: an argument has an invalid value, the settings do not allow a metadata key, gRPC could not send
                the metadata, or a sqlite3 connection is in autocommit mode and has no transaction.
            LedgerLimitError: request and metadata are too large, or too many operations are waiting.
            LedgerSchemaError: `order_key`, `not_after` or `keep_response` was passed, but the tables have not been
                upgraded yet (LG-18).
            LedgerStateError: another request has the same idempotency key.
            LedgerBusyError, LedgerUnavailableError: the database did not accept the operation; the error says whether
                anything was stored.
        """
        return (await self.submit_many([self.prepared(call, *request, **options)], within=within))[0]

    def prepared(self, call: object, *request: object, **options: Unpack[SubmitOptions]) -> Submission:
        """Return an operation for `submit_many` or `statement`, not yet stored; the arguments are those of `submit`.

        Raises:
            OptionError: an argument has an invalid value, or the settings do not allow this metadata key.
            LedgerLimitError: request and metadata are larger than `max_request_bytes` (LG-11).
        """
        return arguments.prepared(self._policies, self.store, call, request, **options)

    async def submit_many(self, prepared: Sequence[Submission], *, within: object = None) -> list[Submitted]:
        """Store operations made by `prepared` in one transaction, all or none; otherwise like `submit`."""
        arguments.check_prepared(prepared)
        if not prepared:
            return []
        await self.make_room(len(prepared))
        if within is not None:
            answer = submitting.submit_within(self.store, within, prepared)
            return answer if isinstance(answer, list) else await answer
        submitted = await submitting.submit(self.store, prepared)
        self._limit.add(sum(one.new for one in submitted))
        for target in {submission.target for submission in prepared}:
            self._waking.wake_all(target)
        return submitted

    def statement(self, prepared: Submission, style: ParameterStyle | None = None) -> tuple[str, tuple[object, ...]]:
        """Return the SQL that stores an operation, and its parameters, for a transaction with any other driver (LG-9).

        No notification is sent, so deliverers find the operation when they poll. If another request has the same
        idempotency key, the database rejects the statement, and the driver raises its own error: a violated NOT NULL
        constraint in SQLite, and in PostgreSQL an error of the class 22 whose text says so. With tables of 0.2.0, it
        is a violated NOT NULL constraint in both, and a request that another transaction stores at the same time with
        the same key is dropped.

        Args:
            prepared: the operation.
            style: how the driver writes parameters: `format` (%s, for psycopg and Django), `qmark` (?, for sqlite3), or
                `numeric_dollar` ($1, for asyncpg); by default, `format` for PostgreSQL and `qmark` for SQLite.

        Raises:
            LedgerSchemaError: the tables lack what the operation needs (LG-18).
            OptionError: there is no such style.
        """
        arguments.check_prepared([prepared])
        return submitting.statement(self.store, prepared, style)

    async def make_room(self, number: int) -> None:
        """Enforce the limit on waiting operations (LG-11); those from other processes are counted some seconds late.

        Raises:
            LedgerLimitError: no room is left for this many more.
        """
        await self._limit.check(number)

    # Waiting for the outcome (LG-19).

    async def wait(self, id: str, timeout: float | None = None) -> OperationOutcome:  # noqa: A002, ASYNC109
        """Wait until an operation has ended, in any process; return its outcome, or raise what its call raised.

        If it is replayed or resolved later, that is another outcome.

        Args:
            id: the operation's id.
            timeout: the longest wait, in seconds; by default, there is no limit, and 0 only looks. The operation itself
                goes on.

        Raises:
            grpc.aio.AioRpcError: the operation has failed or is in conflict, with the code and details of its last
                attempt; the code is UNKNOWN if that attempt was lost.
            LedgerStateError: there is no such operation, or it expired or was discarded.
            LedgerUnavailableError: the database could not be used; the operation is not affected.
            OptionError: `timeout` is not a finite, non-negative number of seconds.
            TimeoutError: the operation has not ended within `timeout`.
        """
        key, limit = arguments.read_id(id), None if timeout is None else checks.pause("timeout", timeout)
        pause = min(self.settings.poll, self.store.waiting)
        with self._waking.waiter(key) as event:
            async with asyncio.timeout(limit or None):
                while True:
                    event.clear()
                    outcome = await queries.outcome(self.store, key)
                    if outcome is None:
                        raise LedgerStateError(f"there is no operation {id} in this ledger")
                    if outcome.state in FINISHED:
                        return _returned(outcome)
                    if limit == 0:
                        raise TimeoutError
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await event.wait()

    # Delivering.

    async def deliver(self, channel: Channel, *, concurrency: int | None = None, grace: float | None = None) -> None:
        """Deliver the operations for a channel's target, until cancelled or until the ledger is closed (LG-10).

        Any number of processes may deliver at once. The ledger makes the attempts itself; the channel and its service
        config do not retry them. Nothing is claimed while the channel has no connection.

        Args:
            channel: a channel of `grpc_backoff.aio`.
            concurrency: the maximum number of concurrent attempts; by default, the setting `concurrency`.
            grace: how long running attempts may continue when the delivery ends, in seconds; by default, the
                setting `grace`.

        Raises:
            TypeError: the channel is not one of `grpc_backoff.aio`.
            LedgerUnavailableError: the ledger is closed, or was opened before a fork.
            OptionError: the service config has retries that this library leaves to grpc's core, or an argument has an
                invalid value.

        Warns:
            PolicyWarning: the channel's file has a table `[ledger]`, but the ledger was opened without a file.
        """
        arguments.check_channel(channel)
        if self._closed:
            raise LedgerUnavailableError("the ledger is closed")
        check_process(channel.target, self._process)
        filed = channel.call_policies.config
        if self._by_default and filed is not None and filed.ledger:
            said = "the channel's file has a table [ledger], which has no effect: pass the file to Ledger.open as well"
            warn_of([said])
        given = {"concurrency": concurrency, "grace": grace}
        passed = {name: value for name, value in given.items() if value is not None}
        chosen = dataclasses.replace(self.settings, **passed)  # type: ignore[arg-type]
        delivery = Delivery(self.store, chosen, self._policies, self._announcer, self.rng, self.owner, channel)
        with self._waking.waking(delivery):
            await delivery.run()

    # Queries.

    async def get(self, id: str) -> Operation:  # noqa: A002
        """Return an operation; LedgerStateError if it does not exist."""
        found = await queries.find(self.store, Filter(ids=(arguments.read_id(id),)), 1)
        if not found:
            raise LedgerStateError(f"there is no operation {id} in this ledger")
        return found[0]

    async def find(
        self, which: Filter | None = None, *, limit: int = BATCH, newest_first: bool = False, after: str | None = None
    ) -> list[Operation]:
        """Return operations, oldest first; `Filter(states=(OperationState.FAILED,))` selects those that have failed.

        Args:
            which: the operations to return; by default, all.
            limit: the maximum number of operations to return.
            newest_first: whether the newest operations come first.
            after: the id of the last operation of the previous page.
        """
        after = None if after is None else (await self.get(after)).id
        chosen, most = arguments.read_filter(which), arguments.read_limit(limit)
        return await queries.find(self.store, chosen, most, after=after, newest_first=newest_first)

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order, over all its series; LedgerStateError if `id` is not a UUID."""
        return await queries.attempts(self.store, arguments.read_id(id))

    async def ready(self, which: Filter | None = None, *, limit: int = BATCH) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
        chosen, most = arguments.read_filter(which), arguments.read_limit(limit)
        return await queries.ready(self.store, chosen, most, self._policies.of_any)

    async def queue(self, target: str | None = None) -> Queue:
        """Return how many operations there are in each state, how many are unfinished, and the longest wait in seconds.

        Raises:
            OptionError: the target is not text, or contains NUL or a surrogate.
        """
        if target is not None and not is_storable(target):
            raise OptionError("target", target, "text without NUL and surrogates")
        return await counting.queue(self.store, target)

    async def queues(self) -> dict[str, Queue]:
        """Return what `queue` returns, for each target by its name."""
        return await counting.queues(self.store)

    async def pages(self, which: Filter) -> AsyncIterator[list[str]]:
        """Yield the ids of the operations that match a filter, in batches, oldest first, without their requests.

        Operations that are changed or submitted meanwhile are yielded at most once, so that failed operations can be
        replayed batch by batch; if that is interrupted, it can be run again.
        """
        which = arguments.read_filter(which)
        ids, after = await queries.ids(self.store, which, _PAGE)
        while ids:
            for page in batches(ids):
                yield [*page]
            ids, after = await queries.ids(self.store, which, _PAGE, after)

    # Manual actions (LG-7, LG-8).

    async def pause(self, target: str) -> None:
        """Stop claiming operations for a target, in all processes, until `resume`; running attempts continue.

        Raises:
            LedgerSchemaError: the tables have not been upgraded yet (LG-18).
            OptionError: the target cannot be dialled.
        """
        await manual.pause(self.store, arguments.target_of(target))

    async def resume(self, target: str) -> bool:
        """End the pause of a target; return whether it was paused."""
        resumed = await manual.resume(self.store, arguments.target_of(target))
        self._waking.wake_all(bare_target(target))
        return resumed

    async def replay(self, *ids: str) -> list[str]:
        """Retry operations that failed or expired; return the ids of those that are retried.

        Their attempts are counted anew, their recorded attempts are kept, and they no longer expire (LG-17).
        """
        states = [OperationState.FAILED, OperationState.EXPIRED]
        retried = await manual.begin_anew(self.store, [*map(arguments.read_id, ids)], states, None)
        self._waking.wake_deliveries()
        return retried

    async def resolve(self, id: str, *, request: bytes | None = None) -> None:  # noqa: A002
        """Resolve a conflict: the operation is retried, with a new request if one is given.

        Raises:
            LedgerStateError: the operation is not in conflict.
            LedgerLimitError: request and metadata are larger than `max_request_bytes` (LG-11).
        """
        if request is not None:
            arguments.check_bytes(request)
            arguments.check_size(request, (await self.get(id)).metadata, self.settings.max_request_bytes)
        if not await manual.begin_anew(self.store, [arguments.read_id(id)], [OperationState.CONFLICT], request):
            raise LedgerStateError(f"operation {id} is {(await self.get(id)).state.value}, not in conflict")
        self._waking.wake_deliveries()

    async def retarget(self, old: str, new: str) -> int:
        """Move operations to another target, for example after a server was renamed; return how many were moved.

        Operations that succeeded, expired or were discarded stay as they are. So does an operation if the new target
        has one with the same method and idempotency key.

        Raises:
            OptionError: a target cannot be dialled.
        """
        change = partial(manual.retarget, self.store, arguments.target_of(old), arguments.target_of(new))
        moved = await manual.in_batches(change)
        self._waking.wake_all(bare_target(new))
        return moved

    async def discard(self, *ids: str) -> list[str]:
        """Discard operations that have not succeeded; return the ids of those that were discarded."""
        return await manual.discard(self.store, [*map(arguments.read_id, ids)])

    async def prune(self, older_than: float | None = None, *, failed: bool = False) -> int:
        """Delete operations that succeeded, expired or were discarded more than `older_than` seconds ago.

        Return how many. The default is the setting `keep`. Failed operations and conflicts are deleted only with
        `failed=True`.

        Raises:
            OptionError: `older_than` is not a finite, non-negative number of seconds.
        """
        states = [*WELL, *([OperationState.FAILED, OperationState.CONFLICT] if failed else [])]
        keep = self.settings.keep if older_than is None else checks.pause("older_than", older_than)
        return await manual.in_batches(partial(manual.prune, self.store, keep, states))

    # Recording attempts that were made without a claim.

    async def record_failure(
        self,
        id: str,  # noqa: A002
        code: str | grpc.StatusCode,
        details: str | None = "",
        *,
        hint: float | None = None,
        trailing_metadata: Iterable[tuple[str, str | bytes]] | None = (),
    ) -> Recorded:
        """Record that an attempt of an operation has failed, under the lock of its row (LG-2).

        This is for programs that make attempts themselves. Concurrent reports are serialized, and none is lost.
        Listeners and hooks are called as in a delivery; a hook has finished when this returns.

        Args:
            id: the operation's id.
            code: the status code, or its name in any case.
            details: the status details, of which 1 KiB is kept.
            hint: how long the server or a worker asked to wait, in seconds, like `retry-after` (LG-4).
            trailing_metadata: the failed call's trailing metadata, from which a hint is read unless `hint` is given.

        Raises:
            LedgerBusyError: the lock was not acquired within `lock_timeout`; nothing was written.
            LedgerStateError: there is no such operation.
            OptionError: the code, the hint or the metadata has an invalid value.
            TypeError: `details` is neither text nor None.
        """
        failure = arguments.read_failure(code, details, hint, trailing_metadata)
        return await self._record(id, failure, cut(details or ""), self.rng.random())

    async def record_success(self, id: str) -> Recorded:  # noqa: A002
        """Record that an attempt of an operation has succeeded; otherwise like `record_failure`."""
        return await self._record(id)

    async def _record(
        self, id_: str, failure: FailedAttempt | None = None, details: str | None = None, draw: float = 0.0
    ) -> Recorded:
        operation = await self.get(id_)
        report = AttemptReport(operation.id, None, self._policies.of_any(operation.policy), failure, details, draw)
        [answer] = await recording.record_ends(self.store, [report])
        if not isinstance(answer, Recorded):
            raise answer
        hook = self._announcer.announce(operation, answer)
        if hook is not None:
            await hook()
        return answer

    async def set_backoff(self, id: str, seconds: float) -> bool:  # noqa: A002
        """Write a backoff, and its timestamp, atomically; return whether a waiting operation had this id.

        The backoff is in seconds. It is limited like a wait that a server asks for: to the `max_server_delay` of the
        operation's policy or, without that setting, to the policy's cap (LG-4).

        Raises:
            OptionError: `seconds` is not a finite, non-negative number.
        """
        key, wait = arguments.read_id(id), checks.pause("seconds", seconds)
        return await recording.set_backoff(self.store, key, wait, self._policies.of_any)


def _returned(outcome: OperationOutcome) -> OperationOutcome:
    """Return the outcome of an operation that succeeded; raise what its call raised otherwise."""
    if outcome.state is OperationState.SUCCEEDED:
        return outcome
    if outcome.state not in (OperationState.FAILED, OperationState.CONFLICT):
        raise LedgerStateError(f"operation {outcome.id} is {outcome.state.value}: it has no outcome")
    codes = grpc.StatusCode.__members__
    code = codes.get(outcome.code or "", grpc.StatusCode.UNKNOWN)
    raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), outcome.details)
