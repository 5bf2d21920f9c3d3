"""How many attempts a delivery makes concurrently after its channel has come back (LG-10). Pure."""

from __future__ import annotations

from grpc_backoff.record import NamedTuple, record

__all__ = ["AttemptWindow"]


@record
class AttemptWindow(NamedTuple):
    """A window that starts with one attempt and grows by one with each that the server answers, as in TCP's slow start.

    Attributes:
        limit: the maximum number of concurrent attempts.
        size: how many are allowed now.
    """

    limit: int
    size: int = 1

    def grown(self) -> AttemptWindow:
        """Return the window after the server has answered."""
        return self if self.size >= self.limit else self._replace(size=self.size + 1)

    def closed(self) -> AttemptWindow:
        """Return the window after the connection was lost."""
        return self._replace(size=1)
