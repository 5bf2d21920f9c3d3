"""A pure value that limits the concurrent attempts of a delivery after its channel has reconnected (LG-10)."""

from __future__ import annotations

from typing import NamedTuple

from grpc_backoff.base.record import record


@record
class AttemptWindow(NamedTuple):
    """A window that starts with one attempt and grows by one with each answer from the server, as in TCP's slow start.

    Attributes:
        limit: the maximum number of concurrent attempts.
        size: how many are allowed now.
    """

    limit: int
    size: int = 1

    def grown(self) -> AttemptWindow:
        """Return the window after the server has answered an attempt."""
        return self if self.size >= self.limit else self._replace(size=self.size + 1)

    def closed(self) -> AttemptWindow:
        """Return the window after the connection was lost."""
        return self._replace(size=1)
