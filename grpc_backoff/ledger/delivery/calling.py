"""Calling: one attempt of an operation, and what its end means (LG-10)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

import grpc
import grpc.aio

from grpc_backoff.aio.call_errors import NoConnectionError
from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import Link
from grpc_backoff.config.hooks import renewed_metadata
from grpc_backoff.config.target import bare_target
from grpc_backoff.decide.calls import call_texts
from grpc_backoff.decide.calls.call_machine import ATTEMPTS_BEFORE, TIMED_OUT, FailedAttempt, ran_out
from grpc_backoff.decide.calls.server_hint import read_hint
from grpc_backoff.ledger.delivery.announcing import Announcer
from grpc_backoff.ledger.operation import IDEMPOTENCY_KEY, Metadata, Operation
from grpc_backoff.ledger.operation_events import call_hook, run_hook
from grpc_backoff.ledger.records import AttemptReport, Lease
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.retry import RetryPolicy

_LOG = Log("grpc_backoff")
_DETAILS = 1024  # how many bytes of a server's status details are kept (LG-1)


class Caller:
    """Makes the attempts of a delivery on its channel."""

    def __init__(self, channel: Channel, announcer: Announcer, rng: Random) -> None:
        self._channel = channel
        self._target = bare_target(channel.target)
        self._announcer = announcer
        self._rng = rng
        self._methods: dict[str, Callable[..., Awaitable[bytes]]] = {}
        self._credentials: Metadata = ()

    async def attempt(
        self,
        operation: Operation,
        policy: RetryPolicy,
        timeout: float,  # noqa: ASYNC109 - it is the timeout of the call
    ) -> AttemptReport | None:
        """Make one attempt; return how it ended, or None if the server has not seen it, so that it does not count."""
        began = time.monotonic()
        try:
            response = await self._call(operation, timeout)
        except grpc.aio.AioRpcError as error:
            if self._never_left(error):
                return None
            return await self._failed(operation, policy, error, took=time.monotonic() - began, limit=timeout)
        hook = self._announcer.hooks().on_success
        if hook is not None:
            await run_hook(self._target, hook, operation, response)
        most = operation.keep_response
        kept = response if most is not None and len(response) <= most else None
        return AttemptReport(*Lease.of(operation), policy, response=kept)

    async def _call(self, operation: Operation, timeout: float) -> bytes:  # noqa: ASYNC109 - it is the timeout of the call
        """Make one attempt, without retries by the channel or service config, and without waiting for a connection."""
        method = self._methods.get(operation.method)
        if method is None:
            method = self._methods[operation.method] = self._channel.unary_unary(operation.method).retrying(None)
        metadata = self._metadata(operation)
        return await method(operation.request, timeout=timeout, metadata=metadata, wait_for_ready=False)

    def _metadata(self, operation: Operation) -> grpc.aio.Metadata:
        renewed = {key for key, _ in self._credentials}
        pairs = [pair for pair in operation.metadata if pair[0] not in renewed]
        pairs += self._credentials
        pairs.append((IDEMPOTENCY_KEY, operation.idempotency_key or operation.id))
        if operation.attempts:
            pairs.append((ATTEMPTS_BEFORE, str(operation.attempts)))  # RT-10; a core that may retry removes it
        return grpc.aio.Metadata(*pairs)

    def _never_left(self, error: grpc.aio.AioRpcError) -> bool:
        if isinstance(error, NoConnectionError):
            return True
        ready = self._channel.get_state() is grpc.ChannelConnectivity.READY
        report = _core_report(error, Link.OPEN if ready else Link.UNREACHABLE)
        return call_texts.never_left(report) or call_texts.was_refused(report)

    async def _failed(
        self, operation: Operation, policy: RetryPolicy, error: grpc.aio.AioRpcError, *, took: float, limit: float
    ) -> AttemptReport:
        code, report = error.code().name, _core_report(error, Link.OPEN)
        trailing, initial = _pairs(error.trailing_metadata()), _pairs(error.initial_metadata())
        late = ran_out(FailedAttempt(code, cut=call_texts.was_cut(report)), limit, took)
        renewed = code == grpc.StatusCode.UNAUTHENTICATED.name and await self._renew(operation)
        failure = failure_of(report, trailing, initial)
        failure = failure._replace(code=TIMED_OUT if late else code, own_timeout=took >= limit, can_refresh=renewed)
        return AttemptReport(*Lease.of(operation), policy, failure, cut(error.details() or ""), self._rng.random())

    async def _renew(self, operation: Operation) -> bool:
        """Call the hook for new credentials and keep them in memory only (LG-11); return whether there are any."""
        refresh = self._announcer.hooks().refresh_credentials
        if refresh is None:
            return False
        try:
            self._credentials = renewed_metadata(await call_hook(refresh, operation))
        except Exception:  # noqa: BLE001 - a hook is user code
            _LOG.exception("%s: the hook refresh_credentials raised", self._target)
            return False
        return True


def failure_of(report: call_texts.Report, trailing: Metadata, initial: Metadata = ()) -> FailedAttempt:
    """Return what a report and the server's metadata say of a failed attempt."""
    return FailedAttempt(
        report.code,
        hint=read_hint(trailing, initial, time.time),
        oversized=call_texts.is_oversized(report),
        never_ran=call_texts.never_ran(report, (*initial, *trailing)),
    )


def cut(details: str) -> str:
    """Truncate a server's status details to the 1 KiB that is kept (LG-1)."""
    return details.encode(errors="replace")[:_DETAILS].decode(errors="ignore").replace("\x00", "")


def _core_report(error: grpc.aio.AioRpcError, link: Link) -> call_texts.Report:
    metadata = bool(_pairs(error.trailing_metadata()) or _pairs(error.initial_metadata()))
    return call_texts.Report(error.code().name, error.details() or "", link, metadata)


def _pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    return tuple((key, value) for key, value in metadata or ())
