"""What the machines say has happened, and the events that are made of it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from grpc_backoff.decide.connections import events, slot_events
from grpc_backoff.decide.connections.happened import ChannelKey, Happened

KINDS = [
    kind
    for module in (events, slot_events)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, events.ConnectionEvent)
]


@pytest.mark.parametrize("kind", sorted(set(KINDS), key=lambda kind: kind.__name__))
def test_events(kind):
    """CH-11: listeners receive an event of the class that is named, with all fields."""
    given = {part.name: part.name for part in fields(kind)}
    event = Happened(kind.__name__, given).event()
    assert type(event) is kind
    assert {part.name: getattr(event, part.name) for part in fields(kind)} == given


def test_changes():
    """SH-7: each channel hears of the same with its own key, and the original does not change."""
    first, second = ChannelKey(), ChannelKey()
    happened = Happened("Closed", {"target": "t", "channel": first, "at": 1.0, "attempt": 1, "lived": None})
    other = happened.changed(channel=second, elsewhere=True)
    assert (happened.event().channel, happened.event().elsewhere) == (first, False)
    assert (other.event().channel, other.event().elsewhere, other.target) == (second, True, "t")
