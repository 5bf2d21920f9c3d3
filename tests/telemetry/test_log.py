"""What is logged of a channel's connection, and at which level."""

from __future__ import annotations

import logging
from dataclasses import fields

import pytest

from grpc_backoff.connection import events
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.telemetry.log import log_event

COMMON = {"target": "dns:///shop:443", "at": 12.5}

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
        events.Disconnected(
            **COMMON, attempt=4, failure=Failure(Stage.ESTABLISHED, "reset"), lived=9.0, counted_as_failure=False
        ),
        logging.INFO,
        "dns:///shop:443: established: reset",
    ),
    (events.BackoffReset(**COMMON, attempt=0), logging.DEBUG, "dns:///shop:443: backoff reset"),
]


KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.ConnectionEvent) and kind is not events.ConnectionEvent
]


@pytest.mark.parametrize(("event", "level", "line"), LINES)
def test_line(caplog, event, level, line):
    """CH-11: each event is one line, INFO for what a person on call wants to know, DEBUG for the rest."""
    with caplog.at_level(logging.DEBUG, "grpc_backoff"):
        log_event(event)

    assert caplog.record_tuples == [("grpc_backoff", level, line)]


def test_every_kind():
    """CH-11: the table above has every kind of event that there is."""
    assert {type(event) for event, _, _ in LINES} == set(KINDS)


def test_nothing_below_level(caplog):
    """CH-11: with the usual level a first connection that goes well says nothing."""
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        log_event(events.AttemptStarted(**COMMON, attempt=1, limit=20.0))
        log_event(events.Connected(**COMMON, attempt=1, took=0.25, connections=1))

    assert caplog.records == []


def test_percent_signs(caplog):
    """CH-11: a reason is passed on as it is, also one that looks like a format."""
    failure = Failure(Stage.RESOLVE, "100% %s {0}")
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        log_event(events.AttemptFailed(**COMMON, attempt=1, failure=failure, took=0.0, retry_in=0.0))

    assert "resolve: 100% %s {0};" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_sensitive(kind):
    """RT-11: events have nothing to log that is sensitive: numbers, the target, and the failure in words."""
    harmless = {"target", "at", "attempt", "limit", "failure", "took", "retry_in", "connections", "lived"}

    assert {field.name for field in fields(kind)} <= harmless | {"counted_as_failure"}


def test_a_recovery_at_the_first_attempt_is_info(caplog):
    """CH-11: a connection made anew is news, also when the first attempt made it."""
    caplog.set_level(logging.DEBUG, logger="grpc_backoff")
    log_event(events.Connected(**COMMON, attempt=1, took=0.25, connections=2))
    assert [record.levelno for record in caplog.records] == [logging.INFO]
