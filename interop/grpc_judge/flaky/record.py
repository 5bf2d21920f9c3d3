"""Takes notes on one connection while it is open; `visit()` returns them as a value.

Only the first sign of the end counts. If a server closes and then reads the client's FIN, the server closed the
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from grpc_judge.timeline import Ending, Request, Visit


class Record:
    """The notes on one connection, from the moment it was accepted."""

    def __init__(self, number: int, client: str, behaviour: str, clock: Callable[[], float]) -> None:
        """Record that the connection was accepted, at the clock's current time."""
        self._clock = clock
        self._visit = Visit(number=number, client=client, behaviour=behaviour, accepted=clock())
        self._requests: dict[int, Request] = {}

    @property
    def ended(self) -> bool:
        """Whether either side has begun to end the connection."""
        return self._visit.ended is not None

    def visit(self) -> Visit:
        """Return everything recorded so far."""
        return replace(self._visit, requests=tuple(self._requests.values()))

    def note(self, event: Literal["first_bytes", "preface", "settings_sent", "settings_acknowledged"]) -> None:
        """Record when an event of the visit happened. Only the first call for each event counts."""
        if getattr(self._visit, event) is None:
            self._visit = replace(self._visit, **{event: self._clock()})  # type: ignore[arg-type]

    def requested(self, stream: int, path: str, call: str = "") -> None:
        """Record the HEADERS of a request and the id of its call."""
        self._requests[stream] = Request(at=self._clock(), stream=stream, path=path, outcome="open", call=call)

    def settled(self, stream: int, outcome: str) -> None:
        """Record the outcome of a request. The first outcome recorded is final."""
        request = self._requests.get(stream)
        if request is not None and request.outcome == "open":
            self._requests[stream] = replace(request, outcome=outcome)

    def end(self, ending: Ending) -> None:
        """Record a sign of the connection's end. Only the first one counts."""
        if not self.ended:
            self._visit = replace(self._visit, ended=self._clock(), ending=ending)
