"""What is logged of a channel's connection and of its calls, and at which level."""

from __future__ import annotations

import logging
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from grpc_backoff.calls import events as calls
from grpc_backoff.calls.events import CallExhausted, CallRetried, CallSucceeded, Reason, WaitSource
from grpc_backoff.connection import events
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.telemetry.log import FIELDS, log_event

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")

COMMON = {"target": "dns:///shop:443", "at": 12.5}
CALL = COMMON | {"method": "/shop.Orders/Place"}
PLACE = "dns:///shop:443: /shop.Orders/Place"
TRACE = "0af7651916cd43dd8448eb211c80319c"
LOST = {"failure": Failure(Stage.ESTABLISHED, "reset"), "lived": 9.0}

LINES = [
    (
        events.AttemptStarted(**COMMON, attempt=3, limit=20.0),
        logging.DEBUG,
        "dns:///shop:443: attempt 3, for at most 20 s",
    ),
    (
        events.AttemptFailed(**COMMON, attempt=3, failure=Failure(Stage.TCP, "refused"), took=0.01234, retry_in=2.5478),
        logging.INFO,
        "dns:///shop:443: attempt 3 failed after 0.0123 s, tcp: refused; next in 2.55 s",
    ),
    (
        events.Connected(**COMMON, attempt=1, took=0.25, connections=1),
        logging.DEBUG,
        "dns:///shop:443: connected at attempt 1 in 0.25 s",
    ),
    (
        events.Connected(**COMMON, attempt=4, took=0.25, connections=2),
        logging.INFO,
        "dns:///shop:443: connected at attempt 4 in 0.25 s",
    ),
    (
        events.Disconnected(**COMMON, attempt=4, **LOST, counted_as_failure=False),
        logging.INFO,
        "dns:///shop:443: established: reset; it had lasted 9 s",
    ),
    (
        events.Disconnected(**COMMON, attempt=4, **LOST, counted_as_failure=True, retry_in=1.25),
        logging.INFO,
        "dns:///shop:443: established: reset; it had lasted 9 s; next in 1.25 s",
    ),
    (
        events.CoreRedial(**COMMON, attempt=1),
        logging.DEBUG,
        "dns:///shop:443: grpc's core redialled by itself, for a call that was assigned to the connection as it ended",
    ),
    (events.BackoffReset(**COMMON, attempt=0), logging.DEBUG, "dns:///shop:443: backoff reset"),
    (
        events.BackoffReset(**COMMON, attempt=0, retry_in=0.75),
        logging.DEBUG,
        "dns:///shop:443: backoff reset; next in 0.75 s",
    ),
    (events.Closed(**COMMON, attempt=0, lived=3.0), logging.DEBUG, "dns:///shop:443: closed"),
    (
        CallRetried(**CALL, attempt=2, code="UNAVAILABLE", delay=0.5, source=WaitSource.SCHEDULE, trace_id=TRACE),
        logging.INFO,
        f"{PLACE} failed at attempt 2, UNAVAILABLE; next in 0.5 s (schedule); trace {TRACE}",
    ),
    (
        CallRetried(**CALL, attempt=1, code="RESOURCE_EXHAUSTED", delay=7.0, source=WaitSource.RETRY_AFTER),
        logging.INFO,
        f"{PLACE} failed at attempt 1, RESOURCE_EXHAUSTED; next in 7 s (retry-after)",
    ),
    (
        CallExhausted(**CALL, attempt=5, code="UNAVAILABLE", reason=Reason.ATTEMPTS, took=12.345, trace_id=TRACE),
        logging.WARNING,
        f"{PLACE} given up at attempt 5 after 12.3 s, UNAVAILABLE: no attempts are left; trace {TRACE}",
    ),
    (
        CallExhausted(**CALL, attempt=1, code="UNAVAILABLE", reason=Reason.STOPPED, took=0.25),
        logging.WARNING,
        f"{PLACE} given up at attempt 1 after 0.25 s, UNAVAILABLE: the server asked for no retry",
    ),
    (
        CallSucceeded(**CALL, attempt=3, took=1.5),
        logging.DEBUG,
        f"{PLACE} succeeded at attempt 3 after 1.5 s",
    ),
]

QUIET = CallSucceeded(**CALL, attempt=1, took=0.001)


def kinds(module, base):
    return {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)} - {base}


KINDS = kinds(events, events.ConnectionEvent) | kinds(calls, calls.CallEvent)


@pytest.mark.parametrize(("event", "level", "line"), LINES)
def test_line(caplog, event, level, line):
    """CH-11, RT-6: each event is one line: WARNING for a call given up, INFO for what a person on call wants to know.

    The rest is DEBUG.
    """
    with caplog.at_level(logging.DEBUG, "grpc_backoff"):
        log_event(event)

    assert caplog.record_tuples == [("grpc_backoff", level, line)]


def test_every_kind():
    """CH-11, RT-11: the table above has every kind of event that there is."""
    assert {type(event) for event, _, _ in LINES} == KINDS


@pytest.mark.parametrize("event", [event for event, _, _ in LINES], ids=lambda event: type(event).__name__)
def test_fields(caplog, event):
    """RT-11: each record has the same attributes, so that a format may name them; None where there is nothing."""
    with caplog.at_level(logging.DEBUG, "grpc_backoff"):
        log_event(event)

    (record,) = caplog.records
    delay = event.retry_in if hasattr(event, "retry_in") else getattr(event, "delay", None)
    assert {name: getattr(record, name) for name in FIELDS} == {
        "target": event.target,
        "method": getattr(event, "method", None),
        "attempt": event.attempt,
        "delay": delay,
        "code": getattr(event, "code", None),
        "trace_id": getattr(event, "trace_id", None),
        "operation_id": getattr(event, "call_id", None),
    }


def test_every_source_and_reason(caplog):
    """RT-11: who said how long to wait, and why there was no further attempt, stand in the line in words."""
    caplog.set_level(logging.DEBUG, logger="grpc_backoff")
    for source in WaitSource:
        log_event(CallRetried(**CALL, attempt=1, code="UNAVAILABLE", delay=0.0, source=source))
        assert f"next in 0 s ({source.value})" in caplog.messages[-1]
    for reason in Reason:
        log_event(CallExhausted(**CALL, attempt=1, code="UNAVAILABLE", reason=reason, took=0.0))
        assert caplog.messages[-1].endswith(f"UNAVAILABLE: {reason.value}")


def test_nothing_for_the_first_try(caplog):
    """RT-11: a call that succeeds at its first attempt leaves no line at any level."""
    with caplog.at_level(1, "grpc_backoff"):
        log_event(QUIET)

    assert caplog.records == []


def test_nothing_below_level(caplog):
    """CH-11: with the usual level a first connection that goes well says nothing, nor does a call that did well."""
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        log_event(events.AttemptStarted(**COMMON, attempt=1, limit=20.0))
        log_event(events.Connected(**COMMON, attempt=1, took=0.25, connections=1))
        log_event(CallSucceeded(**CALL, attempt=2, took=0.001))

    assert caplog.records == []


def test_percent_signs(caplog):
    """CH-11: names and reasons are passed on as they are, also those that look like a format."""
    failure = Failure(Stage.RESOLVE, "100% %s {0}")
    named = COMMON | {"method": "/%d/%s", "target": "%s:1"}
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        log_event(events.AttemptFailed(**COMMON, attempt=1, failure=failure, took=0.0, retry_in=0.0))
        log_event(CallExhausted(**named, attempt=1, code="%x", reason=Reason.BUDGET, took=0.0, trace_id="%f"))

    assert "resolve: 100% %s {0};" in caplog.text
    assert "%s:1: /%d/%s given up at attempt 1 after 0 s, %x: the retry budget is used up; trace %f" in caplog.text


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__))
def test_nothing_sensitive(kind):
    """RT-11: events have nothing to log that is sensitive: numbers, names, codes, and the failure in words."""
    connections = {"channel", "limit", "failure", "retry_in", "connections", "lived", "counted_as_failure", "joined"}
    shared = {"attempt_id", "elsewhere"}
    of_calls = {"method", "code", "delay", "server_delay", "source", "reason", "trace_id", "call_id"}

    assert {field.name for field in fields(kind)} <= {
        "target",
        "at",
        "attempt",
        "took",
        *shared,
    } | connections | of_calls


def test_a_recovery_at_the_first_attempt_is_info(caplog):
    """CH-11: a connection made anew is news, also when the first attempt made it."""
    caplog.set_level(logging.DEBUG, logger="grpc_backoff")
    log_event(events.Connected(**COMMON, attempt=1, took=0.25, connections=2))
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_the_page(caplog):
    """RT-11: the lines on the page about telemetry are such as are logged, and it names every attribute."""
    logs = PAGE.partition("\n## Logs\n")[2].partition("\n## ")[0]
    failed, exhausted = (
        next(event for event, *_ in LINES if isinstance(event, kind)) for kind in (events.AttemptFailed, CallExhausted)
    )
    retried = CallRetried(**CALL, attempt=1, code="UNAVAILABLE", delay=0.5, source=WaitSource.SCHEDULE)
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        for event in (failed, retried, replace(exhausted, trace_id=None)):
            log_event(replace(event, target="shop:443"))

    assert re.search(r"```\n(.*?)```", logs, re.DOTALL)[1].splitlines() == caplog.messages
    assert {name for name in FIELDS if f"`{name}`" not in logs} == set()
