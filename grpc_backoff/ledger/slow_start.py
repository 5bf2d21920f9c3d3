"""How many attempts a delivery makes at a time after its channel has come back (LG-10). Pure."""

from __future__ import annotations

from grpc_backoff.record import NamedTuple, record

__all__ = ["AttemptWindow"]


@record
class AttemptWindow(NamedTuple):
    """A window that begins with one attempt and grows by one with each that the server answers, as TCP's does.

    Attributes:
        limit: the most attempts at a time.
        size: how many there may be now.
    """

    limit: int
    size: int = 1

    def grown(self) -> AttemptWindow:
        """Return the window after the server has answered."""
        return self if self.size >= self.limit else self._replace(size=self.size + 1)

    def closed(self) -> AttemptWindow:
        """Return the window after the connection was lost."""
        return self._replace(size=1)
