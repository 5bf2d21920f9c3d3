"""The ledger's metrics, read with OpenTelemetry's SDK."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from grpc_backoff.ledger import (
    Ledger,
    OperationConflicted,
    OperationDelivered,
    OperationExhausted,
    OperationLost,
    OperationRetried,
)
from grpc_backoff.ledger.otel import LedgerMetrics
from tests.ledger.steps import eventually

WHAT = {"operation_id": "1", "target": "shop:443", "method": "/shop.Orders/Place"}


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def metrics(reader):
    provider = MeterProvider([reader])
    yield LedgerMetrics(provider)
    provider.shutdown()


def read(reader):
    """Return each metric's values, keyed by the metric's name and its labels except target and method."""
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                name = metric.name.removeprefix("grpc_backoff.ledger.")
                for point in metric.data.data_points:
                    labels = {k: v for k, v in point.attributes.items() if k not in ("grpc.target", "grpc.method")}
                    found[(name, *labels.values())] = getattr(point, "value", None) or getattr(point, "sum", None)
    return found


def test_events(reader, metrics):
    """LG-7, seed 003: the metrics count deliveries, retries, lost attempts, conflicts and abandoned operations."""
    metrics(OperationRetried(**WHAT, attempt=1, code="UNAVAILABLE", delay=2.0, source="schedule"))
    metrics(OperationLost(**WHAT, attempt=2, code="LOST", delay=1.0, source="schedule"))
    metrics(OperationDelivered(**WHAT, attempt=3))
    metrics(OperationDelivered(**WHAT, attempt=40))
    metrics(OperationRetried(**WHAT, attempt=1, code="UNAVAILABLE", delay=4.0, source="grpc-retry-pushback-ms"))
    metrics(OperationExhausted(**WHAT, attempt=5, code="UNAVAILABLE", reason="no attempts are left"))
    metrics(OperationExhausted(**WHAT, attempt=1, code="INTERNAL"))
    metrics(OperationConflicted(**WHAT, attempt=1, code="ABORTED"))

    assert read(reader) == {
        ("retries", "1"): 2,
        ("retries", "2"): 1,
        ("lost",): 1,
        ("retry_delay", "schedule"): 3.0,
        ("retry_delay", "pushback"): 4.0,
        ("delivered", "3"): 1,
        ("delivered", "10+"): 1,
        ("exhausted", "UNAVAILABLE", "attempts"): 1,
        ("exhausted", "INTERNAL", "not_retried"): 1,
        ("conflicts", "ABORTED"): 1,
    }


def test_labels_are_those_of_calls(reader, metrics):
    """LG-7, RT-12: targets and methods are labelled as in the call metrics, so the two can be joined."""
    metrics(OperationDelivered(**WHAT, attempt=1))

    [resource] = reader.get_metrics_data().resource_metrics
    [point] = resource.scope_metrics[0].metrics[0].data.data_points
    assert point.attributes["grpc.target"] == "dns:///shop:443"
    assert point.attributes["grpc.method"] == "shop.Orders/Place"


async def test_queue(reader, metrics, tmp_path):
    """LG-7, seed 003: metrics report the number of queued operations by state, and the age of the oldest one."""
    async with await Ledger.open(tmp_path / "ledger.db") as ledger:
        await ledger.submit("t", "/m/m", b"")
        await ledger.pause("u")
        await asyncio.sleep(0.05)
        task = metrics.observe(ledger)
        await eventually(reader.get_metrics_data)
        found = read(reader)
        task.cancel()

    assert found["queue_length", "pending"] == 1
    points = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics[-1].data.data_points
    ages = {point.attributes["grpc.target"]: point.value for point in points}
    assert ages.keys() == {"dns:///t", "dns:///u"}
    assert 0.05 <= ages["dns:///t"] < 60
