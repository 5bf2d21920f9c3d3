"""The log lines about a channel's connection and its calls, and their levels."""

from __future__ import annotations

import logging
import re
from dataclasses import fields, replace
from logging import DEBUG, INFO, WARNING
from pathlib import Path

import pytest

from grpc_backoff.base.status import CANCELLED_BY_SERVER
from grpc_backoff.decide.calls import events as calls
from grpc_backoff.decide.calls.events import (
    CallExhausted,
    CallHedged,
    CallNotConnected,
    CallRetried,
    CallSucceeded,
    Reason,
    WaitSource,
)
from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections import slot_events as slots
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.telemetry.log import FIELDS, log_event

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")

COMMON = {"target": "dns:///shop:443", "at": 12.5}
NO_ATTEMPT = COMMON | {"attempt": 0}
SLOT = NO_ATTEMPT | {"slot": 1}
CALL = COMMON | {"method": "/shop.Orders/Place"}
PLACE = "/shop.Orders/Place"
TRACE = "0af7651916cd43dd8448eb211c80319c"
LOST = {"failure": Failure(Stage.ESTABLISHED, "reset"), "lived": 9.0}
UNRESOLVED = Failure(Stage.RESOLVE, "the name shop could not be resolved")
REDIALLED = "grpc's core redialled by itself for a call that was assigned to the connection just as it ended"

# An event, the level of its line, and the line after the target.
LINES = [
    (
        slots.SlotOpened(**SLOT, endpoint="192.0.2.1:443", why="the name has this address"),
        DEBUG,
        "slot 1 (192.0.2.1:443): opened, because the name has this address",
    ),
    (slots.SlotRetiring(**NO_ATTEMPT, why="it was replaced"), INFO, "slot 0: retiring, because it was replaced"),
    (slots.SlotServing(**SLOT, why="it has a connection"), DEBUG, "slot 1: serving, because it has a connection"),
    (slots.SlotUnhealthy(**SLOT, why="the server is down"), INFO, "slot 1: unhealthy, because the server is down"),
    (slots.SlotCondemned(**SLOT, why="no answer"), INFO, "slot 1: condemned, because no answer"),
    (
        slots.LivenessAsked(**NO_ATTEMPT, why="no call has ended on it for 30 s", within=5.0),
        DEBUG,
        "slot 0: asked whether its peer is alive, because no call has ended on it for 30 s",
    ),
    (
        slots.LivenessAnswered(**NO_ATTEMPT, why="there was news", took=0.0123),
        DEBUG,
        "slot 0: its peer answered after 0.0123 s; it was asked, because there was news",
    ),
    (slots.SlotClosed(**SLOT, why="it is unused", lived=2.0), DEBUG, "slot 1: closed, because it is unused"),
    (slots.NameResolution(**NO_ATTEMPT, addresses=("192.0.2.1:1", "192.0.2.2:1")), DEBUG, "addresses of the name: 2"),
    (slots.NameResolution(**NO_ATTEMPT, failure=UNRESOLVED), INFO, f"the known addresses stay in use: {UNRESOLVED}"),
    (events.AttemptStarted(**COMMON, attempt=3, limit=20.0), DEBUG, "attempt 3, for at most 20 s"),
    (
        events.AttemptFailed(**COMMON, attempt=3, failure=Failure(Stage.TCP, "refused"), took=0.01234, retry_in=2.5478),
        INFO,
        "attempt 3 failed after 0.0123 s, tcp: refused; next in 2.55 s",
    ),
    (events.Connected(**COMMON, attempt=1, took=0.25, connections=1), DEBUG, "connected on attempt 1 in 0.25 s"),
    (events.Connected(**COMMON, attempt=4, took=0.25, connections=2), INFO, "connected on attempt 4 in 0.25 s"),
    # A recovery, although its first attempt succeeded.
    (events.Connected(**COMMON, attempt=1, took=0.25, connections=2), INFO, "connected on attempt 1 in 0.25 s"),
    (events.Disconnected(**COMMON, attempt=4, **LOST, counted_as_failure=False), INFO, "reset; it had lasted 9 s"),
    (
        events.Disconnected(**COMMON, attempt=4, **LOST, counted_as_failure=True, retry_in=1.25),
        INFO,
        "reset; it had lasted 9 s; next in 1.25 s",
    ),
    (events.CoreRedial(**COMMON, attempt=1), DEBUG, REDIALLED),
    (events.BackoffReset(**NO_ATTEMPT), DEBUG, "backoff reset"),
    (events.BackoffReset(**NO_ATTEMPT, retry_in=0.75), DEBUG, "backoff reset; next in 0.75 s"),
    (events.Closed(**NO_ATTEMPT, lived=3.0), DEBUG, "closed"),
    (
        CallRetried(**CALL, attempt=2, code="UNAVAILABLE", delay=0.5, source=WaitSource.SCHEDULE, trace_id=TRACE),
        INFO,
        f"{PLACE} failed on attempt 2, UNAVAILABLE; next in 0.5 s (schedule); trace {TRACE}",
    ),
    (
        CallRetried(**CALL, attempt=1, code="RESOURCE_EXHAUSTED", delay=7.0, source=WaitSource.RETRY_AFTER),
        INFO,
        f"{PLACE} failed on attempt 1, RESOURCE_EXHAUSTED; next in 7 s (retry-after)",
    ),
    (
        CallExhausted(**CALL, attempt=5, code="UNAVAILABLE", reason=Reason.ATTEMPTS, took=12.345, trace_id=TRACE),
        WARNING,
        f"{PLACE} gave up after attempt 5 and 12.3 s, UNAVAILABLE: no attempts are left; trace {TRACE}",
    ),
    (
        CallExhausted(**CALL, attempt=4, code="CANCELLED", reason=Reason.ATTEMPTS, took=0.25),
        WARNING,
        f"{PLACE} gave up after attempt 4 and 0.25 s, CANCELLED, {CANCELLED_BY_SERVER}: no attempts are left",
    ),
    (
        CallExhausted(**CALL, attempt=1, code="UNAVAILABLE", reason=Reason.STOPPED, took=0.25),
        WARNING,
        f"{PLACE} gave up after attempt 1 and 0.25 s, UNAVAILABLE: the server asked the client not to retry",
    ),
    (
        CallNotConnected(**CALL, attempt=1, code="UNAVAILABLE", took=1.5),
        DEBUG,
        f"{PLACE} ended on attempt 1 without a connection after 1.5 s, UNAVAILABLE",
    ),
    (CallHedged(**CALL, attempt=2), DEBUG, f"{PLACE} has no answer yet; copy 2 was sent"),
    (
        calls.CallNotHedged(**CALL, attempt=2, reason=calls.NotHedged.CALM, delay=60.0, first=True),
        INFO,
        f"{PLACE} has no answer yet; copy 2 is not sent for 60 s, because {calls.NotHedged.CALM.value}",
    ),
    (
        calls.CallNotHedged(**CALL, attempt=3, reason=calls.NotHedged.RESETS, delay=0.5),
        DEBUG,
        f"{PLACE} has no answer yet; copy 3 is not sent for 0.5 s, because {calls.NotHedged.RESETS.value}",
    ),
    (CallSucceeded(**CALL, attempt=3, took=1.5), DEBUG, f"{PLACE} succeeded on attempt 3 after 1.5 s"),
    (
        calls.StreamEnded(**CALL, attempt=1, code="OK", delay=2.5, source=WaitSource.SCHEDULE),
        INFO,
        f"{PLACE}: stream ended after open 1, OK; next in 2.5 s (schedule)",
    ),
    (
        calls.StreamResumed(**CALL, attempt=2, gap=calls.Gap(lasted=3.25, opens=2, code="OK")),
        INFO,
        f"{PLACE}: stream resumed with open 2 after 3.25 s, OK",
    ),
]


def kinds(module, base):
    return {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)} - {base}


KINDS = (
    {slots.NameResolution}
    | kinds(events, events.ConnectionEvent)
    | kinds(slots, slots.SlotEvent)
    | kinds(calls, calls.CallEvent)
)


def log(event):
    """Log an event; one of a connection as what the machine says has happened."""
    if isinstance(event, events.ConnectionEvent):
        event = Happened(type(event).__name__, {part.name: getattr(event, part.name) for part in fields(event)})
    log_event(event)


@pytest.fixture(autouse=True)
def _every_level(caplog):
    caplog.set_level(1, "grpc_backoff")


@pytest.mark.parametrize(("event", "level", "line"), LINES, ids=[type(event).__name__ for event, _, _ in LINES])
def test_line(caplog, event, level, line):
    """CH-11, RT-6, RT-11: each event is one line: a call that gave up at WARNING, a failure or a recovery at INFO.

    All other lines are at DEBUG. Every record has the same attributes, so a format string can use them; unused ones are
    None.
    """
    log(event)

    assert caplog.record_tuples == [("grpc_backoff", level, f"{event.target}: {line}")]
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


def test_every_kind():
    """CH-11, RT-11: `LINES` contains every kind of event."""
    assert {type(event) for event, _, _ in LINES} == KINDS


def test_every_source_and_reason(caplog):
    """RT-11: the line says what determined the wait, or why there was no further attempt."""
    for source in WaitSource:
        log_event(CallRetried(**CALL, attempt=1, code="UNAVAILABLE", delay=0.0, source=source))
        assert f"next in 0 s ({source.value})" in caplog.messages[-1]
    for reason in Reason:
        log_event(CallExhausted(**CALL, attempt=1, code="UNAVAILABLE", reason=reason, took=0.0))
        assert caplog.messages[-1].endswith(f"UNAVAILABLE: {reason.value}")


def test_nothing_for_the_first_try(caplog):
    """RT-11: a call that succeeds at its first attempt is not logged at any level."""
    log_event(CallSucceeded(**CALL, attempt=1, took=0.001))

    assert caplog.records == []


def test_percent_signs(caplog):
    """CH-11: percent signs and braces in names and reasons are logged unchanged."""
    failure = Failure(Stage.RESOLVE, "100% %s {0}")
    named = COMMON | {"method": "/%d/%s", "target": "%s:1"}
    log(events.AttemptFailed(**COMMON, attempt=1, failure=failure, took=0.0, retry_in=0.0))
    log_event(CallExhausted(**named, attempt=1, code="%x", reason=Reason.BUDGET, took=0.0, trace_id="%f"))

    assert "resolve: 100% %s {0};" in caplog.text
    assert "%s:1: /%d/%s gave up after attempt 1 and 0 s, %x: the retry budget is used up; trace %f" in caplog.text


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__))
def test_nothing_sensitive(kind):
    """RT-11: events have no fields for sensitive data."""
    connections = {"channel", "limit", "failure", "retry_in", "connections", "lived", "counted_as_failure", "joined"}
    of_slots = {"endpoint", "addresses", "slot", "why", "within"}
    shared = {"target", "at", "attempt", "took", "attempt_id", "elsewhere"}
    of_calls = {"method", "code", "delay", "server_delay", "source", "reason", "trace_id", "call_id", "gap", "first"}

    assert {field.name for field in fields(kind)} <= shared | connections | of_slots | of_calls


def test_the_page(caplog):
    """RT-11: the example lines in docs/telemetry.md are exactly what is logged, and the page names every attribute."""
    logs = PAGE.partition("\n## Logs\n")[2].partition("\n## ")[0]
    failed, exhausted = (
        next(event for event, *_ in LINES if isinstance(event, kind)) for kind in (events.AttemptFailed, CallExhausted)
    )
    retried = CallRetried(**CALL, attempt=1, code="UNAVAILABLE", delay=0.5, source=WaitSource.SCHEDULE)
    for event in (failed, retried, replace(exhausted, trace_id=None)):
        log(replace(event, target="shop:443"))

    assert re.search(r"\n\n```\n(.*?)```", logs, re.DOTALL)[1].splitlines() == caplog.messages
    assert {name for name in FIELDS if f"`{name}`" not in logs} == set()


def test_a_record_factory_with_attributes(caplog):
    """RT-11: an attribute that the program's own factory of records sets is left as it is; the others are set."""
    before = logging.getLogRecordFactory()

    def factory(*args, **named):
        record = before(*args, **named)
        record.trace_id = "the program's"
        return record

    logging.setLogRecordFactory(factory)
    try:
        log_event(CallExhausted(**CALL, attempt=5, code="UNAVAILABLE", reason=Reason.ATTEMPTS, took=1.0))
    finally:
        logging.setLogRecordFactory(before)
    (record,) = caplog.records
    assert (record.trace_id, record.method) == ("the program's", PLACE)


def test_a_handler_that_raises(capsys):
    """CH-11: what a program's handler raises is shown as `logging` shows it, and reaches no channel."""
    handler = logging.Handler()
    handler.emit = lambda _record: 1 / 0
    logger = logging.getLogger("grpc_backoff")
    logger.addHandler(handler)
    try:
        log_event(CallExhausted(**CALL, attempt=5, code="UNAVAILABLE", reason=Reason.ATTEMPTS, took=1.0))
    finally:
        logger.removeHandler(handler)
    assert "ZeroDivisionError" in capsys.readouterr().err
