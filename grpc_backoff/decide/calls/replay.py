"""Buffers the requests of a stream that may have to be sent again (RT-8)."""

from __future__ import annotations

from collections import deque


class ReplayBuffer:
    """Serialized requests by number, starting with the first that may still be needed.

    Attributes:
        end: the number of the next request.
        closed: whether the caller has finished sending requests.
    """

    def __init__(self, limit: int) -> None:
        """Start empty; `limit` is in bytes."""
        self.end = 0
        self.closed = False
        self._limit = limit
        self._kept: deque[bytes] = deque()
        self._size = 0

    def add(self, request: bytes) -> bool:
        """Add the next request; return whether the buffer is within its limit, so that all can be sent again."""
        self._kept.append(request)
        self._size += len(request)
        self.end += 1
        return self._size <= self._limit

    def __getitem__(self, number: int) -> bytes:
        """Return a request by its number; IndexError if it was released or has not been added yet."""
        if number >= self.end:
            raise IndexError(number)
        return self._kept[number - self.end]

    def release(self, number: int) -> None:
        """Discard the requests before this number, which will not be sent again."""
        while len(self._kept) > self.end - number:
            self._size -= len(self._kept.popleft())
