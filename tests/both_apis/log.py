"""A listener that records a channel's events and can wait for them."""

from __future__ import annotations

import asyncio
import itertools

from grpc_backoff import AttemptStarted
from tests.sync.service import until


class Log(list):
    """A listener that keeps the events that it receives, as a list."""

    def __init__(self):
        super().__init__()
        self.hear = self.append

    def of(self, kind):
        """Return the events of one type, or of several in a tuple."""
        return [event for event in self if isinstance(event, kind)]

    def gaps(self):
        """Return the gaps in seconds: the time from the start of each attempt to the start of the next."""
        starts = [event.at for event in self.of(AttemptStarted)]
        return [after - before for before, after in itertools.pairwise(starts)]

    def until(self, kind, count=1):
        """Wait for this many events of one type; return the last of them."""
        until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def exactly(self, kind, count):
        """Check that there are so many events of one type; wait for those that a listener's thread has yet to hear."""
        self.until(kind, count)
        assert len(self.of(kind)) == count

    async def arrived(self, kind, count=1):
        """Do the same on an event loop."""
        async with asyncio.timeout(30):
            while len(self.of(kind)) < count:
                await asyncio.sleep(0.002)
        return self.of(kind)[count - 1]
