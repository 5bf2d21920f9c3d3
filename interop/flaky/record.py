"""What is noted of one connection while it stands; `visit()` is what it has come to.

Only the first sign of an end counts: a server that closes and then reads the client's FIN has closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from interop.timeline import Ending, Request, Visit

__all__ = ["Record"]


class Record:
    """The notes on one connection, from the moment at which it was accepted."""

    def __init__(self, number: int, client: str, behaviour: str, clock: Callable[[], float]) -> None:
        """Note that the connection was accepted, at the clock's time."""
        self._clock = clock
        self._visit = Visit(number=number, client=client, behaviour=behaviour, accepted=clock())
        self._requests: dict[int, Request] = {}

    @property
    def ended(self) -> bool:
        """Whether a sign of its end was seen or given."""
        return self._visit.ended is not None

    def visit(self) -> Visit:
        """Return all that was noted so far."""
        return replace(self._visit, requests=tuple(self._requests.values()))

    def spoke(self) -> None:
        """Note the client's bytes; the first ones count."""
        if self._visit.first_bytes is None:
            self._visit = replace(self._visit, first_bytes=self._clock())

    def prefaced(self) -> None:
        """Note the client's SETTINGS; the first ones complete its preface."""
        if self._visit.preface is None:
            self._visit = replace(self._visit, preface=self._clock())

    def settings_sent(self) -> None:
        """Note that the server's SETTINGS are written, to the last byte."""
        self._visit = replace(self._visit, settings_sent=self._clock())

    def settings_acknowledged(self) -> None:
        """Note that the client acknowledged SETTINGS; the first time counts."""
        if self._visit.settings_acknowledged is None:
            self._visit = replace(self._visit, settings_acknowledged=self._clock())

    def requested(self, stream: int, path: str, call: str = "") -> None:
        """Note the HEADERS of a request, and the id of its call."""
        self._requests[stream] = Request(at=self._clock(), stream=stream, path=path, outcome="open", call=call)

    def settled(self, stream: int, outcome: str) -> None:
        """Note what became of a request; what was noted first stands."""
        request = self._requests.get(stream)
        if request is not None and request.outcome == "open":
            self._requests[stream] = replace(request, outcome=outcome)

    def end(self, ending: Ending) -> None:
        """Note a sign of the connection's end; the first one counts."""
        if not self.ended:
            self._visit = replace(self._visit, ended=self._clock(), ending=ending)
