"""The requests of a stream that may have to be sent again (RT-8): each attempt gets them from the first one.

grpcio reads the requests of each attempt on a separate thread. The thread of a finished attempt may still be in the
program's iterator; the request that it reads goes to the current attempt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from grpc_backoff.calls.replay import ReplayBuffer

__all__ = ["Replay"]

_LOG = logging.getLogger(__name__)


class _Broken:
    """Represents a request that could not be read or serialized, with the error if the iterator raised it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Replay:
    """The requests that one call keeps."""

    def __init__(
        self,
        requests: Iterable[Any],
        serialize: Callable[[Any], bytes] | None,
        limit: int,
    ) -> None:
        """Start without requests; `limit` is in bytes."""
        self.overfull: Callable[[], object] = _ignore
        """Called once, when more bytes than the limit would have to be kept."""
        self._requests = iter(requests)
        self._serialize = serialize
        self._buffer = ReplayBuffer(limit)
        self._changed = threading.Condition()
        self._taking = False
        self._kept_all = True
        self._released = False
        self._end: _Broken | None = None

    def attempt(self) -> Iterator[bytes | None]:
        """Return the requests for one attempt, from the first one."""
        return _Requests(self)

    def release(self) -> None:
        """Stop keeping requests: there will be no further attempt."""
        self._released = True

    def take(self, number: int) -> bytes | None:
        """Return a request by number; None for one that cannot be serialized, which grpcio reports.

        Raises:
            StopIteration: there are no more.
            Exception: any exception raised by the program's iterator.
        """
        with self._changed:
            while number >= self._buffer.end:
                if self._end is not None:
                    if self._end.error is not None:
                        raise self._end.error
                    return None
                if self._buffer.closed:
                    raise StopIteration
                if self._taking:
                    self._changed.wait()
                else:
                    self._take_next()
            request = self._buffer[number]
            if self._released:
                self._buffer.release(number + 1)
            return request

    def _take_next(self) -> None:
        """Read the next request from the program's iterator, without the lock."""
        self._taking = True
        self._changed.release()
        taken: bytes | _Broken | None
        try:
            taken = self._serialized(next(self._requests))
        except StopIteration:
            taken = None
        except BaseException as error:  # noqa: BLE001 - it is the program's, and goes to grpcio's own thread
            taken = _Broken(error)
        finally:
            self._changed.acquire()
            self._taking = False
            self._changed.notify_all()
        self._keep(taken)

    def _serialized(self, request: Any) -> bytes | _Broken:
        if self._serialize is None:
            return request  # type: ignore[no-any-return] # bytes, or grpcio will say so
        try:
            return self._serialize(request)
        except Exception:  # noqa: BLE001 - it is the program's
            _LOG.exception("a request cannot be serialized")
            return _Broken(None)

    def _keep(self, taken: bytes | _Broken | None) -> None:
        if taken is None:
            self._buffer.closed = True
        elif isinstance(taken, _Broken):
            self._end = taken
        elif not self._buffer.add(taken) and self._kept_all:
            self._kept_all = False
            self.overfull()


class _Requests(Iterator[bytes | None]):
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._number = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes | None:
        request = self._replay.take(self._number)
        self._number += 1
        return request


def _ignore() -> None:
    pass
