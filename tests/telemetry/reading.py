"""Reads metrics through OpenTelemetry's SDK, creates events of every kind, and runs code in other processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, Histogram, InMemoryMetricReader, Sum

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
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.decide.connections.slot_events import LivenessAnswered, NameResolution

METHOD = "echo.v1.Echo/Unary"


class Reading:
    """A meter provider of OpenTelemetry's SDK, and the metrics that it exports."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self):
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        assert {scope.scope.name for scope in scopes} <= {"grpc_backoff", "grpc_backoff.ledger"}
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self, name):
        """Return a metric's data points, keyed by the values of their labels in the order of the labels' names."""
        metric = self.metrics().get(name)
        points = metric.data.data_points if metric else []
        return {tuple(value for _, value in sorted(point.attributes.items())): point for point in points}

    def values(self, name):
        return {labels: point.value for labels, point in self.points(name).items()}

    def counts(self, name):
        return {labels: (point.count, point.sum) for labels, point in self.points(name).items()}


def kind(metric):
    match metric.data:
        case Sum():
            return "counter" if metric.data.is_monotonic else "up-down counter"
        case Histogram():
            return "histogram"
        case Gauge():
            return "gauge"


def about(channel, target="127.0.0.1:1"):
    return {"target": target, "at": 1.0, "attempt": 1, "channel": channel}


def call(attempt=1, method=f"/{METHOD}"):
    return {"target": "127.0.0.1:1", "method": method, "at": 1.0, "attempt": attempt}


def connection_events(ready, sleeping):
    """Return events of most kinds: one channel ends READY, the other has ten minutes until its next attempt."""
    refused, lost = Failure(Stage.TCP, "refused"), Failure(Stage.ESTABLISHED, "lost")
    return [
        events.AttemptStarted(**about(sleeping), limit=20.0),
        events.AttemptFailed(**about(sleeping), failure=refused, took=0.1, retry_in=600.0),
        events.AttemptStarted(**about(ready), limit=20.0),
        events.Connected(**about(ready), took=0.1, connections=1),
        events.Disconnected(**about(ready), failure=lost, lived=5.0, counted_as_failure=False),
        events.BackoffReset(**about(ready)),
        events.AttemptStarted(**about(ready), limit=20.0),
        events.Connected(**about(ready), took=0.1, connections=2),
        LivenessAnswered(**about(ready), why="no call has ended on it for 30 s", took=0.1),
        NameResolution(**about(ready), addresses=("192.0.2.1:443",)),
    ]


def call_events():
    """Return events of every kind, with every wait source and every reason."""
    retried = [
        CallRetried(**call(), code="UNAVAILABLE", delay=0.5, source=source, server_delay=0.25) for source in WaitSource
    ]
    retried.append(replace(retried[1], delay=0.125))  # shorter than the server asked for
    exhausted = [CallExhausted(**call(5), code="UNAVAILABLE", took=9.0, reason=reason) for reason in Reason]
    ended = StreamEnded(**call(), code="OK", delay=0.5, source=WaitSource.SCHEDULE)
    lost = CallNotConnected(**call(), code="UNAVAILABLE", took=0.5)
    held = CallNotHedged(**call(2), reason=NotHedged.CALM, delay=60.0, first=True)
    return [*retried, *exhausted, CallHedged(**call(2)), held, CallSucceeded(**call(2), took=0.5), ended, lost]


def tell(metrics, *told):
    for event in told:
        metrics(event)


def run(code):
    """Run code in another process and return the words that it prints."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
