"""Events about retried calls: frozen values without confidential data."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields

import pytest

import grpc_backoff
from grpc_backoff.decide.calls import events
from grpc_backoff.decide.calls.events import (
    CallEvent,
    CallExhausted,
    CallNotConnected,
    CallRetried,
    CallSucceeded,
    Reason,
    WaitSource,
)

AT = {"target": "dns:shop:443", "method": "/shop.Orders/Place", "at": 12.5, "attempt": 2, "call_id": "c0ffee"}
EVENTS = [
    CallRetried(**AT, code="UNAVAILABLE", delay=0.25, source=WaitSource.PUSHBACK),
    CallSucceeded(**AT, took=1.5),
    CallNotConnected(**AT, code="UNAVAILABLE", took=1.5),
    CallExhausted(**AT, code="ABORTED", reason=Reason.BUDGET, took=1.5, trace_id="0af7651916cd43dd8448eb211c80319c"),
]
ids = [type(event).__name__ for event in EVENTS]


@pytest.mark.parametrize("event", EVENTS, ids=ids)
def test_value(event):
    """CH-11: events are frozen values, which listeners may keep, compare and pickle."""
    assert isinstance(event, CallEvent)
    assert pickle.loads(pickle.dumps(event)) == event
    assert hash(event) == hash(pickle.loads(pickle.dumps(event)))
    assert not hasattr(event, "__dict__")
    with pytest.raises(FrozenInstanceError):
        event.attempt = 3


@pytest.mark.parametrize("event", EVENTS, ids=ids)
def test_by_name_only(event):
    """CH-11: events take only keyword arguments, so adding a field breaks no user code."""
    with pytest.raises(TypeError):
        type(event)(*AT.values())


ALLOWED = {
    *("target", "method", "at", "attempt", "call_id", "code", "delay", "source", "server_delay", "reason", "took"),
    "trace_id",
}


@pytest.mark.parametrize("kind", [CallEvent, *(type(event) for event in EVENTS)])
def test_no_secrets(kind):
    """RT-11: events have no field for a payload, for metadata or for the server's error details."""
    assert {field.name for field in fields(kind)} <= ALLOWED
    assert {field.name for field in fields(kind)} >= set(AT)


def test_no_trace():
    """RT-11: outside a trace, `trace_id` is None."""
    assert CallRetried(**AT, code="UNAVAILABLE", delay=0.0, source=WaitSource.SCHEDULE).trace_id is None
    assert CallExhausted(**AT, code="UNAVAILABLE", reason=Reason.ATTEMPTS, took=0.0).trace_id is None


EXPORTED = [name for name, kind in vars(events).items() if getattr(kind, "__module__", "") == events.__name__]


@pytest.mark.parametrize("name", EXPORTED)
def test_at_the_top(name):
    """CH-11: the types that a listener needs are exported by the top-level package."""
    assert getattr(grpc_backoff, name) is getattr(events, name)
    assert name in grpc_backoff.__all__


def test_words():
    """RT-6: every reason and every wait source has a distinct text, because logs and errors show that text."""
    texts = [member.value for kind in (Reason, WaitSource) for member in kind]

    assert len(set(texts)) == len(texts) == len(Reason) + len(WaitSource)
    assert all(isinstance(text, str) and text for text in texts)
