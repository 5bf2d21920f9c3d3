"""Lets one client at a time be tested, while the others wait in line.

As with the official server, a turn ends when its client calls Stop. Here, however, a client that leaves without calling
Stop does not block the others forever: when a turn reaches the limit, the next client in line gets its turn.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from grpc_judge.conformance.terms import Terms

_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class Turn:
    """The test of one client. Times are on the event loop's clock.

    Attributes:
        client: the client's end of its control connection, as grpc names it.
        terms: the terms by which the client is judged.
        began: when the test started.
        attempts: when the client dialled.
        over: set when the client ends the test.
    """

    client: str
    terms: Terms
    began: float
    attempts: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """Assigns turns in the order in which clients ask for them.

    Attributes:
        current: the current turn; None between turns.
    """

    def __init__(self, limit: float) -> None:
        """Limit each turn to `limit` seconds if another client is waiting."""
        self._limit = limit
        self._line = asyncio.Lock()  # its holder is first in line; asyncio's locks are fair
        self._too_late: set[str] = set()
        self.current: Turn | None = None

    async def take(self, client: str, terms: Terms) -> Turn:
        """Start a turn once all turns requested earlier have ended."""
        async with self._line:
            if self.current is not None:
                await self._until_over(self.current)
            self._too_late.discard(client)
            self.current = Turn(client=client, terms=terms, began=asyncio.get_running_loop().time())
            return self.current

    def end(self, client: str) -> Turn | None:
        """End the current turn and return it; None if there is none.

        Clients are anonymous, so any client may end the turn, as with the official server. The exception is a client
        whose own turn timed out: its Stop is ignored, because it would end another client's turn.
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
