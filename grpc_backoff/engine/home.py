"""Where connections live: an event loop, the conductor of the threaded channels, or a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from grpc_backoff.connection.clock import Clock


class Home(Clock, Protocol):
    """Where the work on a connection runs, one piece after another, and the monotonic clock of that place."""

    @property
    def keeps_time(self) -> bool:
        """Whether that clock is the machine's, which different homes have in common."""
        ...

    def post(self, work: Callable[[], None], /) -> None:
        """Run `work` soon, and in order. Thread-safe.

        Raises:
            RuntimeError: the event loop is closed.
        """
        ...

    def is_here(self) -> bool:
        """Return whether the calling code runs there."""
        ...

    def is_closed(self) -> bool:
        """Return whether nothing runs there any more."""
        ...
