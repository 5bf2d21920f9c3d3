"""What the machines say has happened to connections, from which events are made for those who hear of it.

Most channels have no listener, so neither the events nor their classes are needed by most programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpc_backoff.base.record import NamedTuple

if TYPE_CHECKING:
    from grpc_backoff.decide.connections.events import ConnectionEvent


class ChannelKey:
    """Identifies the channel that an event belongs to, for as long as that channel exists.

    A listener that serves several channels can keep its data about each of them in a `weakref.WeakKeyDictionary` with
    this key.
    """

    __slots__ = ("__weakref__",)


class Happened(NamedTuple):
    """What has happened to a connection, a slot or a name.

    Attributes:
        kind: the name of the event's class in `events.py` or `slot_events.py`.
        fields: the event's fields, without those that have their default.
    """

    kind: str
    fields: dict[str, Any]

    @property
    def target(self) -> str:
        """The channel's target as given."""
        target: str = self.fields["target"]
        return target

    def changed(self, **fields: object) -> Happened:
        """Return the same with other values of these fields."""
        return Happened(self.kind, {**self.fields, **fields})

    def event(self) -> ConnectionEvent:
        """Return the event that listeners receive."""
        # Imported with the first listener (CH-12).
        from grpc_backoff.decide.connections import events, slot_events  # noqa: PLC0415

        kind: type[ConnectionEvent] = getattr(events, self.kind, None) or getattr(slot_events, self.kind)
        return kind(**self.fields)


def load_events() -> None:
    """Import the events before there are any, because there is a listener (CH-12)."""
    from grpc_backoff.decide.calls import events  # noqa: F401, PLC0415
    from grpc_backoff.decide.connections import slot_events  # noqa: F401, PLC0415
