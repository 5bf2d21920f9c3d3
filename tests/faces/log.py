"""The events of a channel, and waiting for them."""

from __future__ import annotations

import itertools

from grpc_backoff import AttemptStarted
from tests.sync.service import until


class Log(list):
    """A listener that keeps what it hears."""

    def __init__(self):
        super().__init__()
        self.hear = self.append

    def of(self, kind):
        """Return the events of one kind."""
        return [event for event in self if isinstance(event, kind)]

    def gaps(self):
        """Return the seconds from each attempt's start to the next one's."""
        starts = [event.at for event in self.of(AttemptStarted)]
        return [after - before for before, after in itertools.pairwise(starts)]

    def until(self, kind, count=1):
        """Wait until there are so many of a kind; return the last of them."""
        until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]
