"""How asyncio channels behave in the child of a fork (FK-1): the child leaves the parent's channels untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from grpc_backoff.channel.forks import CoreUse, at_fork

if TYPE_CHECKING:
    from grpc_backoff.aio.channel import Channel

_channels: WeakSet[Channel] = WeakSet()
_inherited: list[Channel] = []
"""The parent's open channels. They are kept, because freeing their core channels would involve the core."""


def note(channel: Channel) -> None:
    """Track a channel until it is closed or garbage-collected."""
    _channels.add(channel)


def _inherit() -> CoreUse:
    found = [channel for channel in _channels if not channel.closing]
    _inherited.extend(found)
    _channels.clear()
    return CoreUse(asyncio=bool(found))


at_fork(_inherit)
