"""One client at a time: the others wait in line for their turn.

As with the official server, a turn ends when its client says so. Unlike there, a client that went away without saying
so does not hold up the others for ever: a turn that has lasted for the limit passes to the next in line.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from interop.conformance.terms import Terms

__all__ = ["Turn", "Turns"]

_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class Turn:
    """One client's test. Times are the event loop's.

    Attributes:
        client: the client's end of its control connection, as grpc names it.
        terms: what the client is held to.
        began: when it began.
        attempts: when the client dialled.
        over: set once the client has ended it.
    """

    client: str
    terms: Terms
    began: float
    attempts: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """Gives out turns, one after the other, first come, first served.

    Attributes:
        current: the turn that runs; None between two.
    """

    def __init__(self, limit: float) -> None:
        """End a turn that lasts for more than `limit` seconds while another client waits."""
        self._limit = limit
        self._line = asyncio.Lock()  # the client that holds it is first in line; asyncio's locks are fair
        self._too_late: set[str] = set()
        self.current: Turn | None = None

    async def take(self, client: str, terms: Terms) -> Turn:
        """Begin a turn, once all that were asked for before it are over."""
        async with self._line:
            if self.current is not None:
                await self._until_over(self.current)
            self._too_late.discard(client)
            self.current = Turn(client=client, terms=terms, began=asyncio.get_running_loop().time())
            return self.current

    def end(self, client: str) -> Turn | None:
        """End the turn that runs, if there is one, and return it.

        Clients are not known by name, and any of them may end the turn, as with the official server; but for one
        whose own turn was taken away: it would end another's.
        """
        if client in self._too_late:
            self._too_late.discard(client)
            return None
        turn, self.current = self.current, None
        if turn is not None:
            turn.over.set()
        return turn

    async def _until_over(self, turn: Turn) -> None:
        try:
            async with asyncio.timeout_at(turn.began + self._limit):
                await turn.over.wait()
        except TimeoutError:
            _logger.warning("%s did not call Stop within %g s: its turn is over", turn.client, self._limit)
            self._too_late.add(turn.client)
