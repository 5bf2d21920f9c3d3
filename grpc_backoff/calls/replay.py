"""The requests of a stream that may have to be sent again (RT-8)."""

from __future__ import annotations

from collections import deque

__all__ = ["ReplayBuffer"]


class ReplayBuffer:
    """Serialized requests by number, from the first that may still be needed.

    Attributes:
        end: the number that the next request gets.
        closed: whether the caller has said that no more requests follow.
    """

    def __init__(self, limit: int) -> None:
        """Begin empty; `limit` is in bytes."""
        self.end = 0
        self.closed = False
        self._limit = limit
        self._kept: deque[bytes] = deque()
        self._size = 0

    def add(self, request: bytes) -> bool:
        """Take the next request; return whether all of them can still be sent again."""
        self._kept.append(request)
        self._size += len(request)
        self.end += 1
        return self._size <= self._limit

    def __getitem__(self, number: int) -> bytes:
        """Return a request by its number; IndexError for one that was released, or is still to come."""
        if number >= self.end:
            raise IndexError(number)
        return self._kept[number - self.end]

    def release(self, number: int) -> None:
        """Forget the requests before this one: nobody will send them again."""
        while len(self._kept) > self.end - number:
            self._size -= len(self._kept.popleft())
