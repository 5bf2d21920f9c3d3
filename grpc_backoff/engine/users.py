"""Who uses a shared connection, and what is closed when one of them leaves (SH-7).

A channel asks for the connection until it leaves and uses it until its calls have ended. So the manager stops dialling
when the last channel leaves, and the connection is closed when the last channel's calls have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

UserT = TypeVar("UserT")


class Users(Generic[UserT]):
    """The channels that share a connection, in the order in which they joined."""

    def __init__(self) -> None:
        self._asking: dict[UserT, None] = {}
        self._using: set[UserT] = set()

    def __iter__(self) -> Iterator[UserT]:
        """Iterate over the channels that have not left; they may leave during the iteration."""
        return iter(tuple(self._asking))

    def join(self, user: UserT) -> None:
        """Add a channel."""
        self._asking[user] = None
        self._using.add(user)

    def is_last(self, user: UserT) -> bool:
        """Return whether no other channel asks for the connection, so this one closes the manager when it leaves."""
        return self._asking.keys() == {user}

    def leave(self, user: UserT) -> None:
        """Stop asking for the connection; the channel's calls may continue."""
        self._asking.pop(user, None)

    def shares_with(self, user: UserT) -> bool:
        """Return whether the calls of others may be running, so that only this channel's own calls may be ended."""
        return not self._using <= {user}

    def end(self, user: UserT) -> bool:
        """Remove a channel whose calls have ended; return whether the connection is to be closed."""
        self._using.discard(user)
        return not self._using
