"""The metrics as OpenTelemetry's SDK reads them, from artificial events. `test_otel_channels.py` uses real channels."""

from __future__ import annotations

import gc
import importlib
import re
import sys
import weakref
from pathlib import Path

import grpc
import pytest

from grpc_backoff.decide.calls.events import (
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
from grpc_backoff.decide.connections.events import ChannelKey, Failure, Stage
from grpc_backoff.errors import MissingExtra
from grpc_backoff.telemetry import otel
from grpc_backoff.telemetry.otel import Metrics
from tests.telemetry.reading import METHOD, Reading, about, call, call_events, connection_events, kind, run, tell

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")

A94 = [
    ("grpc.subchannel.connection_attempts_succeeded", "counter", "{attempt}", {"grpc.target"}),
    ("grpc.subchannel.connection_attempts_failed", "counter", "{attempt}", {"grpc.target"}),
    ("grpc.subchannel.disconnections", "counter", "{disconnection}", {"grpc.target", "grpc.disconnect_error"}),
    ("grpc.subchannel.open_connections", "up-down counter", "{connection}", {"grpc.target"}),
]
"""The table of gRFC A94, without the optional labels for load balancing and security."""
TARGETS = [
    *("127.0.0.1:50051", "[::1]:80", "shop", "shop:443", "dns:///shop:443", "dns:shop:443", "DNS:///shop:443"),
    *("ipv4:127.0.0.1:1", "ipv6:[::1]:80", "unix:/tmp/x", "unix:///tmp/x", "unix-abstract:x"),
    *("xds:///shop", "google-c2p:///shop", "other://x/y"),
]
CHANNELS = ChannelKey(), ChannelKey()
PLACE = "dns:///127.0.0.1:1"
CALLS = METHOD, PLACE
"""The first labels of what is counted for calls."""


@pytest.mark.parametrize(("name", "its_kind", "unit", "labels"), A94)
def test_connections_as_in_a94(reading, metrics, name, its_kind, unit, labels):
    """CH-11: metrics that gRFC A94 defines have its kinds, units and labels, and its names with our prefix."""
    tell(metrics, *connection_events(*CHANNELS))

    metric = reading.metrics()[name.replace("grpc.", "grpc_backoff.", 1)]
    assert (kind(metric), metric.unit) == (its_kind, unit)
    assert {frozenset(point.attributes) for point in metric.data.data_points} == {frozenset(labels)}


def test_the_page_has_every_metric(reading, metrics):
    """RT-12: the table in docs/telemetry.md lists every registered metric, with its kind, unit and labels."""
    tell(metrics, *connection_events(*CHANNELS), *call_events())
    registered = {
        (
            metric.name,
            kind(metric),
            metric.unit,
            frozenset(label for point in metric.data.data_points for label in point.attributes),
        )
        for metric in reading.metrics().values()
    }

    table = PAGE.partition("\n## Every metric\n")[2].partition("\n### ")[0]
    rows = [re.split(r" *\| *", line)[1:-1] for line in table.splitlines() if line.startswith("| `")]
    listed = {
        (name.strip("`"), its, unit.strip("`"), frozenset(re.findall(r"`([^`]+)`", labels)))
        for name, its, unit, labels, _ in rows
    }
    assert listed == registered
    assert len(rows) == len(listed)


def test_the_page_has_every_value_of_a_label():
    """RT-12: docs/telemetry.md lists every value that a label can have."""
    values = PAGE.partition("\n## Labels\n")[2].partition("\n## ")[0]
    every = [source.name.lower() for source in WaitSource] + [reason.name.lower() for reason in Reason]
    every += [otel.SHUTDOWN, otel.UNKNOWN, "1", f"{otel.LAST_ATTEMPT}+"]
    assert {value for value in every if f"`{value}`" not in values} == set()


def test_buckets(reading, metrics):
    """RT-12: the histograms have buckets for waits, from 0 to beyond MAX_BACKOFF with jitter."""
    tell(metrics, *connection_events(*CHANNELS), *call_events())
    histograms = [metric for metric in reading.metrics().values() if kind(metric) == "histogram"]

    assert {metric.name for metric in histograms} == {otel.BACKOFF_DELAY, otel.RETRY_DELAY, otel.SERVER_DELAY}
    for metric in histograms:
        assert {point.explicit_bounds for point in metric.data.data_points} == {otel.DELAYS}
    assert otel.DELAYS[0] == 0
    assert otel.DELAYS[-2] < 120 * 1.2 < otel.DELAYS[-1]
    assert sorted(set(otel.DELAYS)) == list(otel.DELAYS)
    listed = re.search(r"use these bucket boundaries: ([^s]*) s\.", PAGE)[1]
    assert [float(bound) for bound in re.findall(r"[\d.]+", listed)] == list(otel.DELAYS)


@pytest.mark.parametrize("target", TARGETS)
def test_targets_as_grpc_has_them(reading, metrics, target):
    """CH-11: the label `grpc.target` has the canonical value of gRFC A66, which is the core's, including the scheme."""
    with grpc.insecure_channel(target) as channel:
        canonical = channel._channel.target().decode()
    if canonical == f"dns:///{target}" and target.startswith("DNS:"):
        pytest.skip("this grpcio takes a scheme in capitals for a host name, so such a channel never connects")
    key = ChannelKey()
    tell(metrics, events.Connected(**about(key, target), took=0.1, connections=1))

    assert reading.values(otel.SUCCEEDED) == reading.values(otel.OPEN_CONNECTIONS) == {(canonical,): 1}


def test_one_target_written_in_two_ways(reading, metrics):
    """CH-11: two spellings of a target have the same label, and their connections add up."""
    keys = ChannelKey(), ChannelKey()
    for key, target in zip(keys, ("shop:1", "dns:///shop:1"), strict=True):
        tell(metrics, events.Connected(**about(key, target), took=0.1, connections=1))

    assert reading.values(otel.OPEN_CONNECTIONS) == {("dns:///shop:1",): 2}


def test_an_eager_channel_that_is_held_back(reading, metrics):
    """CB-7, CH-11: if an eager channel waits after a loss that was not a failure, only the gauge shows the wait."""
    key, lost = ChannelKey(), Failure(Stage.ESTABLISHED, "lost")
    told = events.Disconnected(**about(key), failure=lost, lived=0.1, counted_as_failure=False, retry_in=60.0)
    tell(metrics, told)

    assert reading.values(otel.NEXT_ATTEMPT_IN) == {(PLACE,): pytest.approx(60.0, abs=10.0)}
    assert reading.counts(otel.BACKOFF_DELAY) == {}


def test_retries(reading, metrics):
    """RT-12: retries are counted by the number of the failed attempt, and their waits by source."""
    tell(
        metrics,
        *(CallRetried(**call(1), code="UNAVAILABLE", delay=0.25, source=WaitSource.SCHEDULE) for _ in range(3)),
        CallRetried(**call(2), code="UNAVAILABLE", delay=1.5, source=WaitSource.SCHEDULE),
        CallRetried(**call(2), code="UNAUTHENTICATED", delay=0.0, source=WaitSource.REFRESH),
        CallRetried(**call(1), code="UNAVAILABLE", delay=0.0, source=WaitSource.REFUSED),
    )

    assert reading.values(otel.RETRIES) == {(*CALLS, "1"): 4, (*CALLS, "2"): 2}
    assert reading.counts(otel.RETRY_DELAY) == {
        (*CALLS, "schedule"): (4, 2.25),
        (*CALLS, "refresh"): (1, 0.0),
        (*CALLS, "refused"): (1, 0.0),
    }
    assert reading.values(otel.SERVER_DELAYS_HONORED) == reading.values(otel.SERVER_DELAYS_SHORTENED) == {}
    assert reading.counts(otel.SERVER_DELAY) == {}


def test_server_delays(reading, metrics):
    """RT-12, RT-3: waits requested by a server and waits that were shortened are counted apart, and so are their
    lengths."""
    for source, delay, asked in (
        (WaitSource.PUSHBACK, 0.0, 0.0),
        (WaitSource.RETRY_INFO, 3.0, 1.0),
        (WaitSource.RETRY_AFTER, 40.0, 120.0),
    ):
        tell(metrics, CallRetried(**call(), code="UNAVAILABLE", delay=delay, source=source, server_delay=asked))

    assert reading.values(otel.SERVER_DELAYS_HONORED) == {(*CALLS, "pushback"): 1, (*CALLS, "retry_info"): 1}
    assert reading.values(otel.SERVER_DELAYS_SHORTENED) == {(*CALLS, "retry_after"): 1}
    assert reading.counts(otel.SERVER_DELAY) == {
        (*CALLS, "pushback"): (1, 0.0),
        (*CALLS, "retry_info"): (1, 1.0),
        (*CALLS, "retry_after"): (1, 120.0),
    }
    assert reading.counts(otel.RETRY_DELAY) == {
        (*CALLS, "pushback"): (1, 0.0),
        (*CALLS, "retry_info"): (1, 3.0),
        (*CALLS, "retry_after"): (1, 40.0),
    }
    assert reading.points(otel.SERVER_DELAY)[*CALLS, "pushback"].bucket_counts[0] == 1


def test_ends_of_calls(reading, metrics):
    """RT-12, RT-6: successes are counted by attempt, including the first; calls that gave up, by code and reason."""
    tell(metrics, *(CallSucceeded(**call(attempt), took=0.1) for attempt in (1, 1, 1, 3)))
    for reason in Reason:
        tell(metrics, CallExhausted(**call(5), code="UNAVAILABLE", took=9.0, reason=reason))
    tell(metrics, CallExhausted(**call(1), code="RESOURCE_EXHAUSTED", took=0.0, reason=Reason.STOPPED))

    assert reading.values(otel.SUCCESSES) == {(*CALLS, "1"): 3, (*CALLS, "3"): 1}
    assert reading.values(otel.EXHAUSTED) == {
        **{(METHOD, "UNAVAILABLE", PLACE, reason): 1 for reason in ("attempts", "deadline", "budget", "stopped")},
        (METHOD, "RESOURCE_EXHAUSTED", PLACE, "stopped"): 1,
    }


def test_copies(reading, metrics):
    """RT-12, HG-10: the copies of hedged calls are counted by their numbers."""
    tell(metrics, *(CallHedged(**call(copy)) for copy in (2, 3, 2)))

    assert reading.values(otel.COPIES) == {(*CALLS, "2"): 2, (*CALLS, "3"): 1}


def test_delayed_copies(reading, metrics):
    """RT-12, HG-11: copies that wait to spare their connections are counted by the reason."""
    for reason in (NotHedged.CALM, NotHedged.RESETS, NotHedged.CALM):
        tell(metrics, CallNotHedged(**call(2), reason=reason, delay=1.0))

    assert reading.values(otel.COPIES_DELAYED) == {(METHOD, PLACE, "calm"): 2, (METHOD, PLACE, "resets"): 1}


def test_no_connection(reading, metrics):
    """RT-12: calls that ended without a connection are counted by their codes."""
    for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNAVAILABLE"):
        tell(metrics, CallNotConnected(**call(), code=code, took=0.5))

    assert reading.values(otel.NOT_CONNECTED) == {
        (METHOD, "UNAVAILABLE", PLACE): 2,
        (METHOD, "DEADLINE_EXCEEDED", PLACE): 1,
    }


def test_reopened_streams(reading, metrics):
    """RT-12, SB-5: the streams of subscriptions that are opened again are counted by the code of their end."""
    for code in ("OK", "UNAVAILABLE", "OK"):
        tell(metrics, StreamEnded(**call(), code=code, delay=0.5, source=WaitSource.SCHEDULE))

    assert reading.values(otel.STREAMS_REOPENED) == {(METHOD, "OK", PLACE): 2, (METHOD, "UNAVAILABLE", PLACE): 1}


def test_endless_retries_have_few_series(reading, metrics):
    """RT-12: the attempt label has ten values, of which the last covers all the rest."""
    for attempt in range(1, 1001):
        tell(metrics, CallRetried(**call(attempt), code="UNAVAILABLE", delay=0.1, source=WaitSource.SCHEDULE))
        tell(metrics, CallSucceeded(**call(attempt), took=0.1))

    by_attempt = {str(attempt): 1 for attempt in range(1, 10)} | {"10+": 991}
    for name in (otel.RETRIES, otel.SUCCESSES):
        assert {labels[-1]: value for labels, value in reading.values(name).items()} == by_attempt
    assert len(reading.points(otel.RETRY_DELAY)) == 1


def test_two_listeners_of_one_provider(reading, metrics):
    """RT-12: events from two listeners with the same provider add up, including in the gauges."""
    first, second = ChannelKey(), ChannelKey()
    tell(metrics, events.Connected(**about(first), took=0.1, connections=1))
    tell(Metrics(reading.provider), events.Connected(**about(second), took=0.1, connections=1))

    assert list(reading.values(otel.OPEN_CONNECTIONS).values()) == [2]
    assert list(reading.values(otel.SUCCEEDED).values()) == [2]


def test_providers_are_apart(reading, metrics):
    """RT-12: metrics recorded with one provider do not appear in another."""
    other = Reading()
    tell(metrics, *connection_events(*CHANNELS))
    silent = Metrics(other.provider)
    assert other.metrics() == {}
    tell(silent, events.AttemptStarted(**about(CHANNELS[0], "elsewhere:1"), limit=20.0))
    assert set(other.metrics()) == {otel.OPEN_CONNECTIONS, otel.CONNECTIONS}
    other.provider.shutdown()


def test_a_provider_is_not_kept():
    """RT-12: the library does not keep a provider alive after the program has dropped it."""
    reading = Reading()
    Metrics(reading.provider)
    reading.provider.shutdown()
    gone = weakref.ref(reading.provider)
    del reading
    gc.collect()
    assert gone() is None


def test_without_an_sdk():
    """RT-12: without an SDK, the listener accepts every event, does nothing, and holds no reference to a channel."""
    said = run("""
        import sys
        from grpc_backoff.decide.connections import events
        from grpc_backoff.decide.calls.events import CallRetried, CallSucceeded, WaitSource
        from grpc_backoff.telemetry.otel import Metrics

        metrics = Metrics()
        for _ in range(1000):
            key = events.ChannelKey()
            about = {"target": "a:1", "at": 1.0, "attempt": 1}
            metrics(events.Connected(**about, channel=key, took=0.1, connections=1))
            metrics(CallRetried(**about, method="/a/B", code="ABORTED", delay=0.1, source=WaitSource.SCHEDULE))
            metrics(CallSucceeded(**about, method="/a/B", took=0.1))
        del key
        print(len(metrics._instruments._channels._known))
        print([name for name in sys.modules if name.startswith("opentelemetry.sdk")] or "none")
        """)
    assert said == ["0", "none"]


def test_the_global_provider():
    """RT-12: by default the global provider is used, even if it is set later, and no connection is missed."""
    said = run("""
        from opentelemetry import metrics as api
        from grpc_backoff import ChannelKey
        from grpc_backoff.telemetry.otel import NEXT_ATTEMPT_IN, OPEN_CONNECTIONS, SUCCEEDED, Metrics
        from tests.telemetry.reading import Reading, call_events, connection_events, tell

        early, keys = Metrics(), [ChannelKey() for _ in range(4)]
        tell(early, *connection_events(*keys[:2]))
        reading = Reading()
        api.set_meter_provider(reading.provider)
        tell(early, *call_events())
        tell(Metrics(), *connection_events(*keys[2:]))
        print(*reading.values(OPEN_CONNECTIONS).values(), *reading.values(SUCCEEDED).values())
        print(len(reading.metrics()), len(reading.values(NEXT_ATTEMPT_IN)))
        """)
    assert said == ["2", "2", "20", "1"]


def test_without_the_extra(monkeypatch):
    """RT-12: without OpenTelemetry's API, importing the module raises an error that says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    monkeypatch.delitem(sys.modules, "grpc_backoff.telemetry.otel")
    with pytest.raises(MissingExtra, match=r"pip install 'grpc-backoff\[otel\]'"):
        importlib.import_module("grpc_backoff.telemetry.otel")
