"""OpenTelemetry metrics: the connection counters of gRFC A94, the lengths of waits, and the results of retries (RT-12).

One listener serves any number of channels::

    metrics = Metrics()
    channel = aio.insecure_channel(target, listeners=[metrics])

Units and labels are gRPC's own where gRPC defines them (A94, A96, A66). All names have the prefix `grpc_backoff.`, so
that the metrics do not mix with grpc's own. Only OpenTelemetry's API is used, from the extra `otel`; without an SDK
nothing is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from grpc_backoff.base.base_errors import MissingExtra
from grpc_backoff.base.version import __version__
from grpc_backoff.config.target import canonical_target
from grpc_backoff.decide.calls.events import (
    CallEvent,
    CallExhausted,
    CallHedged,
    CallNotConnected,
    CallNotHedged,
    CallRetried,
    CallSucceeded,
    NotHedged,
    Reason,
    StreamEnded,
    WaitSource,
)
from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.events import ConnectionEvent, Role
from grpc_backoff.decide.connections.slot_events import LivenessAnswered, NameResolution, SlotClosed, SlotCondemned
from grpc_backoff.telemetry.channels import Channels

try:
    from opentelemetry.metrics import Histogram, Meter, MeterProvider, Observation, get_meter_provider
except ImportError as error:
    raise MissingExtra("otel", "grpc_backoff.telemetry.otel") from error

__all__ = ["Metrics", "attempt_label", "canonical_target", "delay_histogram", "word_label"]

# The names of the metrics.
SUCCEEDED: Final = "grpc_backoff.subchannel.connection_attempts_succeeded"
FAILED: Final = "grpc_backoff.subchannel.connection_attempts_failed"
DISCONNECTIONS: Final = "grpc_backoff.subchannel.disconnections"
OPEN_CONNECTIONS: Final = "grpc_backoff.subchannel.open_connections"
CONNECTIONS: Final = "grpc_backoff.channel.connections"
LIVENESS_CALLS: Final = "grpc_backoff.channel.liveness_calls"
RESOLUTIONS: Final = "grpc_backoff.channel.resolutions"
BACKOFF_DELAY: Final = "grpc_backoff.subchannel.backoff_delay"
NEXT_ATTEMPT_IN: Final = "grpc_backoff.subchannel.next_attempt_in"
RETRIES: Final = "grpc_backoff.client.call.retries"
RETRY_DELAY: Final = "grpc_backoff.client.call.retry_delay"
SUCCESSES: Final = "grpc_backoff.client.call.successes"
EXHAUSTED: Final = "grpc_backoff.client.call.exhausted"
SERVER_DELAYS_HONORED: Final = "grpc_backoff.client.call.server_delays_honored"
SERVER_DELAYS_SHORTENED: Final = "grpc_backoff.client.call.server_delays_shortened"
SERVER_DELAY: Final = "grpc_backoff.client.call.server_delay"
NOT_CONNECTED: Final = "grpc_backoff.client.call.not_connected"
COPIES: Final = "grpc_backoff.client.call.copies"
COPIES_DELAYED: Final = "grpc_backoff.client.call.copies_delayed"
STREAMS_REOPENED: Final = "grpc_backoff.client.call.streams_reopened"

# The labels, and the values that A94 defines.
TARGET: Final = "grpc.target"
METHOD: Final = "grpc.method"
STATUS: Final = "grpc.status"
DISCONNECT_ERROR: Final = "grpc.disconnect_error"
ROLE: Final = "grpc_backoff.role"
ANSWERED: Final = "grpc_backoff.answered"
RESOLVED: Final = "grpc_backoff.resolved"
ATTEMPT: Final = "grpc_backoff.attempt"
SOURCE: Final = "grpc_backoff.source"
REASON: Final = "grpc_backoff.reason"
SHUTDOWN: Final = "subchannel shutdown"
UNKNOWN: Final = "unknown"

LAST_ATTEMPT: Final = 10
"""Attempts from this number on share one label value, because each label value creates a time series that is kept for
good."""
DELAYS: Final = (0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""The bounds of the histogram buckets, in seconds: from no wait to longer than any wait of the presets."""

Labels = dict[str, str]


class Metrics:
    """Records the events of channels and their calls as OpenTelemetry metrics; `docs/telemetry.md` lists them.

    Pass the instance to each channel when you create the channel, because earlier events are not included.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Record with this meter provider; by default with the global one, even if that is set later."""
        self._instruments = _instruments(meter_provider or get_meter_provider())

    def __call__(self, event: ConnectionEvent | CallEvent) -> None:
        """Record one event."""
        self._instruments.record(event, {TARGET: canonical_target(event.target)})


class _Instruments:
    """The instruments of one meter."""

    def __init__(self, meter: Meter, channels: Channels) -> None:
        self._channels = channels
        self._succeeded = meter.create_counter(SUCCEEDED, "{attempt}", "Connection attempts that succeeded.")
        self._failed = meter.create_counter(FAILED, "{attempt}", "Connection attempts that failed.")
        self._disconnections = meter.create_counter(DISCONNECTIONS, "{disconnection}", "Connections that ended.")
        self._liveness = meter.create_counter(
            LIVENESS_CALLS, "{call}", "Liveness calls, by whether they were answered."
        )
        self._resolutions = meter.create_counter(
            RESOLUTIONS, "{resolution}", "Resolutions of names, by whether they succeeded."
        )
        self._backoff = delay_histogram(meter, BACKOFF_DELAY, "Waits after failed connection attempts.")
        meter.create_observable_up_down_counter(
            OPEN_CONNECTIONS, [lambda _: _observed(channels.open_connections())], "{connection}", "Open connections."
        )
        meter.create_observable_up_down_counter(
            CONNECTIONS,
            [lambda _: _by_role(channels.roles())],
            "{connection}",
            "Open connections, by what they are for.",
        )
        meter.create_observable_gauge(
            NEXT_ATTEMPT_IN, [lambda _: _observed(channels.next_attempts())], "s", "Time to the next planned attempt."
        )
        self._retries = meter.create_counter(RETRIES, "{retry}", "Failed attempts that are followed by a retry.")
        self._delay = delay_histogram(meter, RETRY_DELAY, "Waits before retries of calls.")
        self._successes = meter.create_counter(SUCCESSES, "{call}", "Calls that succeeded.")
        self._exhausted = meter.create_counter(EXHAUSTED, "{call}", "Calls that gave up retrying.")
        self._not_connected = meter.create_counter(NOT_CONNECTED, "{call}", "Calls that ended without a connection.")
        self._honored = meter.create_counter(SERVER_DELAYS_HONORED, "{delay}", "Waits as long as a server asked for.")
        self._shortened = meter.create_counter(SERVER_DELAYS_SHORTENED, "{delay}", "Waits shorter than that.")
        self._server_delay = delay_histogram(meter, SERVER_DELAY, "Lengths of the waits that a server asked for.")
        self._copies = meter.create_counter(COPIES, "{copy}", "Copies of hedged calls after the first.")
        self._delayed = meter.create_counter(
            COPIES_DELAYED, "{copy}", "Copies of hedged calls that were delayed to spare their connections."
        )
        self._reopened = meter.create_counter(
            STREAMS_REOPENED, "{stream}", "Streams of subscriptions that ended and are opened again."
        )

    def record(self, event: ConnectionEvent | CallEvent, labels: Labels) -> None:
        if isinstance(event, CallEvent):
            self._record_call(event, labels | {METHOD: event.method.removeprefix("/")})
            return
        self._channels.note(event, labels[TARGET])
        if not self._channels.is_news(event):
            return  # SH-7
        match event:
            case events.AttemptFailed():
                self._failed.add(1, labels)
                self._backoff.record(event.retry_in, labels)
            case events.Connected(joined=False):
                self._succeeded.add(1, labels)
            case events.Disconnected():
                self._disconnections.add(1, labels | {DISCONNECT_ERROR: UNKNOWN})
                if event.counted_as_failure and event.retry_in is not None:
                    self._backoff.record(event.retry_in, labels)
            case LivenessAnswered() | SlotCondemned():
                self._liveness.add(1, labels | {ANSWERED: str(isinstance(event, LivenessAnswered)).lower()})
            case NameResolution():
                self._resolutions.add(1, labels | {RESOLVED: str(event.failure is None).lower()})
            case SlotClosed() | events.Closed() if event.lived is not None:
                self._disconnections.add(1, labels | {DISCONNECT_ERROR: SHUTDOWN})

    def _record_call(self, event: CallEvent, labels: Labels) -> None:
        match event:
            case CallRetried():
                self._retries.add(1, labels | {ATTEMPT: attempt_label(event.attempt)})
                labels[SOURCE] = word_label(event.source)
                self._delay.record(event.delay, labels)
                if event.server_delay is not None:
                    counter = self._honored if event.delay >= event.server_delay else self._shortened
                    counter.add(1, labels)
                    self._server_delay.record(event.server_delay, labels)
            case CallHedged():
                self._copies.add(1, labels | {ATTEMPT: attempt_label(event.attempt)})
            case CallNotHedged():
                self._delayed.add(1, labels | {REASON: word_label(event.reason)})
            case StreamEnded():
                self._reopened.add(1, labels | {STATUS: event.code})
            case CallSucceeded():
                self._successes.add(1, labels | {ATTEMPT: attempt_label(event.attempt)})
            case CallExhausted():
                self._exhausted.add(1, labels | {STATUS: event.code, REASON: word_label(event.reason)})
            case CallNotConnected():
                self._not_connected.add(1, labels | {STATUS: event.code})


_LOCK = threading.Lock()
_MADE: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()
_GLOBAL = Channels()


def _instruments(provider: MeterProvider) -> _Instruments:
    """Return the provider's instruments, which are created only once.

    If there were a second gauge with the same name, the SDK would drop its callbacks. For the same reason, the
    instruments of the global provider observe the same channels before and after it is set.
    """
    with _LOCK:
        made = _MADE.get(provider)
        if made is None:
            meter = provider.get_meter("grpc_backoff", __version__)
            channels = _GLOBAL if provider is get_meter_provider() else Channels()
            made = _MADE[provider] = _Instruments(meter, channels)
        return made


def delay_histogram(meter: Meter, name: str, description: str) -> Histogram:
    """Return a histogram of waits in seconds."""
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=DELAYS)


def _observed(values: Mapping[str, float]) -> Iterable[Observation]:
    return [Observation(value, {TARGET: target}) for target, value in values.items()]


def _by_role(values: Mapping[tuple[str, Role], int]) -> Iterable[Observation]:
    return [Observation(value, {TARGET: target, ROLE: role.value}) for (target, role), value in values.items()]


def attempt_label(attempt: int) -> str:
    """Return the label value for an attempt's number."""
    return str(attempt) if attempt < LAST_ATTEMPT else f"{LAST_ATTEMPT}+"


def word_label(word: WaitSource | Reason | NotHedged) -> str:
    """Return the label value for the source of a wait, or for the reason why there is no further attempt or copy."""
    return word.name.lower()
