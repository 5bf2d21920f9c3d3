"""The requests of a stream that may have to be sent again (RT-8): each attempt gets all of them, from the first one.

grpcio reads the requests of each attempt on a separate thread. The thread of an attempt that has ended may still be
reading from the program's iterator; the request that it reads goes to the current attempt, or to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from grpc_backoff.base.logs import Log
from grpc_backoff.base.threads import Condition
from grpc_backoff.decide.calls.replay import ReplayBuffer

_LOG = Log(__name__)


class _Broken:
    """Represents a request that could not be read or serialized; holds the error if the iterator raised one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Replay:
    """The requests that one call keeps."""

    def __init__(
        self,
        requests: Iterable[object],
        serialize: Callable[[object], bytes] | None,
        limit: int,
    ) -> None:
        """Start without requests; `limit` is how many bytes are kept."""
        self.overfull: Callable[[], object] = lambda: None
        """Called once, when more bytes than the limit would have to be kept and an attempt is running."""
        self._requests: Any = requests if hasattr(requests, "__next__") else iter(requests)
        self._serialize = serialize
        self._buffer = ReplayBuffer(limit)
        self._changed = Condition()
        self._taking = False
        self._over_limit = self._reported = False
        self._released = False
        self._running: _Requests | None = None
        self._end: _Broken | None = None

    def attempt(self) -> Iterator[bytes | None]:
        """Return an iterator over the requests for one attempt, from the first one."""
        requests = _Requests(self)
        with self._changed:
            self._running = requests
            self._changed.notify_all()  # the threads of earlier attempts end
            report, self._over_limit = self._over_limit, False
        if report:  # because of a request that was read after the previous attempt had failed
            self.overfull()
        return requests

    def end(self, attempt: Iterator[bytes | None]) -> None:
        """End the thread of an attempt that has ended, and keep the request that it still reads for the next one."""
        with self._changed:
            if self._running is attempt:
                self._running = None
            self._changed.notify_all()

    def release(self) -> None:
        """Stop keeping requests, because there will be no further attempt."""
        self._released = True

    def take(self, number: int, attempt: _Requests) -> bytes | None:
        """Return a request by its number to an attempt; None if it cannot be serialized, which grpcio reports.

        Raises:
            StopIteration: there are no more requests, or the attempt has ended.
            Exception: any exception raised by the program's iterator.
        """
        with self._changed:
            if not self._arrived(number, attempt):
                return None
            if attempt is not self._running:
                raise StopIteration  # the running one may have discarded the request
            request = self._buffer[number]
            report = self._over_limit and self._running is not None
            if report:
                self._over_limit = False
        if report:  # without the lock, because a call that starts an attempt holds its own lock and then needs this one
            self.overfull()
        if self._released:
            with self._changed:
                if attempt is self._running:  # an earlier one must not discard what this one has still to send
                    self._buffer.release(number + 1)
        return request

    def _arrived(self, number: int, attempt: _Requests) -> bool:
        """Read requests until this one has been read; return False if it cannot be serialized.

        Raises:
            StopIteration: there are no more requests, or the attempt has ended.
        """
        while number >= self._buffer.end:
            if attempt is not self._running:
                raise StopIteration
            if self._end is not None:
                if self._end.error is not None:
                    raise self._end.error
                return False
            if self._buffer.closed:
                raise StopIteration
            if self._taking:
                self._changed.wait()
            else:
                self._take_next()
        return True

    def _take_next(self) -> None:
        """Read the next request from the program's iterator, with the lock released."""
        self._taking = True
        self._changed.release()
        taken: bytes | _Broken | None
        try:
            taken = self._serialized(next(self._requests))
        except StopIteration:
            taken = None
        except BaseException as error:  # noqa: BLE001 - raised again in grpcio's own thread
            taken = _Broken(error)
        finally:
            self._changed.acquire()
            self._taking = False
            self._changed.notify_all()
        if taken is None:
            self._buffer.closed = True
        elif isinstance(taken, _Broken):
            self._end = taken
        elif not self._buffer.add(taken) and not self._reported:
            self._over_limit = self._reported = True

    def _serialized(self, request: Any) -> bytes | _Broken:
        if self._serialize is not None:
            try:
                request = self._serialize(request)
            except Exception:  # noqa: BLE001 - a serializer may raise anything
                _LOG.exception("a request could not be serialized")
                return _Broken(None)
        return _Broken(None) if request is None else request  # bytes, or grpcio will say so


class _Requests(Iterator[bytes | None]):
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._number = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes | None:
        request = self._replay.take(self._number, self)
        self._number += 1
        return request
