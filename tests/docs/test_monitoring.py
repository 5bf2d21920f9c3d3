"""The Prometheus rules and the dashboard: promtool accepts them, and they name only this library's metrics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess

import pytest

from grpc_backoff.decide.connections.events import ChannelKey
from grpc_backoff.ledger import (
    OperationConflicted,
    OperationDelivered,
    OperationExhausted,
    OperationExpired,
    OperationLost,
    OperationRetried,
    OperationState,
)
from grpc_backoff.ledger.records import Queue
from tests.docs.pages import DOCS, blocks, read
from tests.telemetry.reading import Reading, call_events, connection_events, tell

FOLDER = DOCS / "monitoring"
RULES = (FOLDER / "alerts.yml").read_text("utf-8")
PANELS = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]
VARIABLES = {"$__rate_interval": "5m", "$target": ".*"}
SUFFIXES = {"s": "_seconds"}


def queries():
    """Return the queries of the dashboard, with Grafana's variables filled in, and of the page."""
    found = [target["expr"] for panel in PANELS for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        found = [query.replace(variable, value) for query in found]
    assert "$" not in "".join(found)
    return found + blocks("telemetry.md", "promql")


@pytest.fixture(scope="module")
def promtool():
    """Return a function that runs Prometheus's promtool (Debian's package `prometheus`)."""
    program = shutil.which("promtool")
    if program is None:
        if os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS") == "1":
            pytest.fail("promtool is missing: install the package prometheus")
        pytest.skip("promtool is missing: install the package prometheus")

    def run(*arguments):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=FOLDER, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_rules_are_good(promtool):
    """RT-12: Prometheus accepts the alert rules."""
    promtool("check", "rules", "alerts.yml")


def test_rules_fire(promtool):
    """RT-12: each alert fires only when it should, according to the test file that users also get."""
    promtool("test", "rules", "alerts_test.yml")


def test_number_of_panels():
    """RT-12: the page tells how many panels the dashboard has."""
    assert f"has {len(PANELS)} panels" in read("telemetry.md")


def test_queries_are_good(promtool, tmp_path):
    """RT-12: Prometheus can parse the queries of the dashboard and the page; promtool checks them as rules."""
    rules = [{"record": f"query:number_{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))  # JSON is YAML
    promtool("check", "rules", str(tmp_path / "queries.yml"))


LEDGER = {"operation_id": "1", "target": "shop:443", "method": "/shop.Orders/Place", "attempt": 1}
LEDGER_EVENTS = [
    OperationDelivered(**LEDGER),
    OperationRetried(**LEDGER, code="UNAVAILABLE", delay=1.0, source="schedule"),
    OperationLost(**LEDGER, code="LOST", delay=1.0, source="schedule"),
    OperationExhausted(**LEDGER, code="UNAVAILABLE", reason="no attempts are left"),
    OperationConflicted(**LEDGER, code="ABORTED"),
    OperationExpired(**LEDGER),
]


class Observed:
    """A ledger with one operation, as far as its metrics observe it."""

    async def queues(self):
        return {"shop:443": Queue({OperationState.PENDING: 1}, length=1, oldest=5.0)}


def record_everything(provider):
    """Record events of every kind with this provider, about channels, calls and a ledger."""
    from grpc_backoff.ledger.otel import LedgerMetrics
    from grpc_backoff.telemetry.otel import Metrics

    channels = ChannelKey(), ChannelKey()
    tell(Metrics(provider), *connection_events(*channels), *call_events())
    ledger = LedgerMetrics(provider)
    tell(ledger, *LEDGER_EVENTS)

    async def observe():
        observing = ledger.observe(Observed())
        await asyncio.sleep(0.01)
        observing.cancel()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(observe())
    loop.close()
    return channels, ledger  # gauges are read as long as these exist


def exported():
    """Return the labels of each metric, keyed by the metric's name in Prometheus."""
    reading = Reading()
    try:
        _kept = record_everything(reading.provider)
        names = {}
        for metric in reading.metrics().values():
            name = metric.name.replace(".", "_") + SUFFIXES.get(metric.unit, "")
            labels = {label.replace(".", "_") for point in metric.data.data_points for label in point.attributes}
            if hasattr(metric.data.data_points[0], "bucket_counts"):
                names |= {f"{name}_bucket": labels | {"le"}, f"{name}_count": labels, f"{name}_sum": labels}
            else:
                names[name + "_total" * bool(getattr(metric.data, "is_monotonic", False))] = labels
        return names
    finally:
        reading.provider.shutdown()


def test_every_name_is_a_metric():
    """RT-12: rules and queries name only metrics and labels that exist."""
    names = exported()
    text = [*re.findall(r"expr: (?:>-)?((?:.|\n)*?)\n +(?:for|labels):", RULES), *queries()]
    used = {name for each in text for name in re.findall(r"\bgrpc_backoff_(?:subchannel|client|ledger)_\w+", each)}
    labels = {label for each in text for group in re.findall(r"by \(([^)]*)\)", each) for label in group.split(", ")}

    assert len(text) >= 20
    assert used <= set(names)
    assert labels - {"instance"} <= set().union(*names.values())


def test_every_metric_is_on_the_dashboard():
    """RT-12: every metric appears in a query of the dashboard or the page."""
    shown = "".join(queries())

    assert [name for name in exported() if re.sub("_(bucket|count|sum)$", "", name) not in shown] == []


def test_the_exporter_names_them_so():
    """RT-12: OpenTelemetry's own exporter produces the same metric names."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import REGISTRY

    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    try:
        _kept = record_everything(provider)
        registry = CollectorRegistry()
        registry.register(reader._collector)
        names = set(re.findall(r"^(grpc_backoff_\w+)[{ ]", generate_latest(registry).decode(), re.MULTILINE))
    finally:
        provider.shutdown()
    assert reader._collector not in REGISTRY._collector_to_names
    assert names == set(exported())


def test_the_page_has_every_alert():
    """RT-12: the page's table lists exactly the alert rules, with their severities, and each rule has a test."""
    rules = re.findall(r"- alert: (\w+)\n(?:.|\n)*?severity: (\w+)\n", RULES)
    table = re.findall(r"^\| `(Grpc\w+)` \| (\w+) \|", read("telemetry.md"), re.MULTILINE)
    tested = re.findall(r"alertname: (\w+)\n +exp_alerts", (FOLDER / "alerts_test.yml").read_text("utf-8"))

    assert table == rules
    assert {name for name, _ in rules} == set(tested)
