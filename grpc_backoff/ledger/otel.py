"""OpenTelemetry metrics for a ledger: waiting operations, deliveries by attempt, and failures.

The metrics are a listener that can also observe the queue::

    metrics = LedgerMetrics()
    ledger = await Ledger.open(url, listeners=[metrics])
    metrics.observe(ledger)

Only OpenTelemetry's API is used, from the extra `otel`; without an SDK nothing is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from grpc_backoff.base.base_errors import MissingExtra
from grpc_backoff.base.version import __version__
from grpc_backoff.decide.calls.events import Reason, WaitSource
from grpc_backoff.ledger import operation_events
from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.ledger import Ledger
from grpc_backoff.ledger.records import Queue
from grpc_backoff.telemetry.otel import (
    ATTEMPT,
    METHOD,
    REASON,
    SOURCE,
    STATUS,
    TARGET,
    attempt_label,
    canonical_target,
    delay_histogram,
    word_label,
)

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
except ImportError as error:
    raise MissingExtra("otel", "grpc_backoff.ledger.otel") from error

DELIVERED: Final = "grpc_backoff.ledger.delivered"
RETRIES: Final = "grpc_backoff.ledger.retries"
RETRY_DELAY: Final = "grpc_backoff.ledger.retry_delay"
LOST: Final = "grpc_backoff.ledger.lost"
EXHAUSTED: Final = "grpc_backoff.ledger.exhausted"
EXPIRED: Final = "grpc_backoff.ledger.expired"
CONFLICTS: Final = "grpc_backoff.ledger.conflicts"
QUEUE_LENGTH: Final = "grpc_backoff.ledger.queue_length"
OLDEST_AGE: Final = "grpc_backoff.ledger.oldest_age"

_STATE: Final = "grpc_backoff.state"
_NOT_RETRIED: Final = "not_retried"
"""The reason label's value for a code that the policy does not retry at all. Calls do not count such failures as
exhausted."""


class LedgerMetrics:
    """Records a ledger's events; `observe` adds the gauges of its queue."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Record with this meter provider; with the global one by default."""
        meter = (meter_provider or get_meter_provider()).get_meter("grpc_backoff.ledger", __version__)
        self._queues: Mapping[str, Queue] = {}
        self._delivered = meter.create_counter(DELIVERED, "{operation}", "Operations delivered, by attempt.")
        self._retries = meter.create_counter(RETRIES, "{retry}", "Failed attempts that are followed by a retry.")
        self._lost = meter.create_counter(
            LOST, "{attempt}", "Attempts whose lease expired before their end was recorded."
        )
        self._exhausted = meter.create_counter(EXHAUSTED, "{operation}", "Operations whose policy gave up.")
        self._expired = meter.create_counter(EXPIRED, "{operation}", "Operations not executed before their not_after.")
        self._conflicts = meter.create_counter(CONFLICTS, "{operation}", "Operations in conflict.")
        self._delay = delay_histogram(meter, RETRY_DELAY, "Waits before retries.")
        meter.create_observable_gauge(QUEUE_LENGTH, [self._lengths], "{operation}", "Operations, by target and state.")
        meter.create_observable_gauge(OLDEST_AGE, [self._age], "s", "The longest wait of an unfinished operation.")

    def __call__(self, event: operation_events.OperationEvent) -> None:
        """Record one event."""
        labels = {TARGET: canonical_target(event.target), METHOD: event.method.removeprefix("/")}
        attempt = attempt_label(event.attempt)
        match event:
            case operation_events.OperationDelivered():
                self._delivered.add(1, labels | {ATTEMPT: attempt})
            case operation_events.OperationRetried():
                if isinstance(event, operation_events.OperationLost):
                    self._lost.add(1, labels)
                self._retries.add(1, labels | {ATTEMPT: attempt})
                self._delay.record(event.delay, labels | {SOURCE: word_label(WaitSource(event.source))})
            case operation_events.OperationExhausted():
                reason = word_label(Reason(event.reason)) if event.reason else _NOT_RETRIED
                self._exhausted.add(1, labels | {STATUS: event.code, REASON: reason})
            case operation_events.OperationConflicted():
                self._conflicts.add(1, labels | {STATUS: event.code})
            case operation_events.OperationExpired():
                self._expired.add(1, labels)

    def observe(self, ledger: Ledger, every: float = 15.0) -> asyncio.Task[None]:
        """Query a ledger's queue at this interval, in seconds; cancel the returned task to stop."""
        return asyncio.ensure_future(self._look(ledger, every))

    async def _look(self, ledger: Ledger, every: float) -> None:
        while True:
            with contextlib.suppress(LedgerError):  # the values stay as they were
                self._queues = await ledger.queues()
            await asyncio.sleep(every)

    def _lengths(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(number, {TARGET: canonical_target(target), _STATE: state.value})
            for target, queue in self._queues.items()
            for state, number in queue.counts.items()
        ]

    def _age(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(queue.oldest, {TARGET: canonical_target(target)}) for target, queue in self._queues.items()]
