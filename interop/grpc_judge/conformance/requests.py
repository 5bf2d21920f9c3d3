"""Clauses about calls, which the server counts: every request carries the id of its call.

Workers number their calls, so a number that the server never sees belongs to a call that never left the client.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpc_judge.conformance.clause import NotApplicableError, clause
from grpc_judge.conformance.evidence import Evidence
from grpc_judge.conformance.gaps import count_calls, count_connections
from grpc_judge.conformance.scenario import Scenario
from grpc_judge.conformance.terms import Range
from grpc_judge.conformance.verdict import Measure
from grpc_judge.timeline import Request

_REFUSING = "settings_then_goaway"
"""The behaviour under which the server does not accept calls."""
_WAITS = "wait"
"""What the id of a wait-for-ready call ends in, if the client has no manifest."""
_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class _Calls:
    """The requests that the server saw, by worker and call number, and the workers that make wait-for-ready calls."""

    by_worker: Mapping[int, Mapping[int, Sequence[tuple[str, Request]]]]
    waiting: Collection[int]

    def never_seen(self, workers: Collection[int] | None = None) -> int:
        """Return the number of calls that never arrived: all, or only those of these workers."""
        return sum(
            max(calls) + 1 - len(calls)
            for worker, calls in self.by_worker.items()
            if workers is None or worker in workers
        )

    def last_ones(self) -> set[tuple[int, int]]:
        """Return each worker's last call, which the end of the trial may have cut short."""
        return {(worker, max(calls)) for worker, calls in self.by_worker.items()}

    def taken(self) -> Sequence[int]:
        """Return how many times a server took each call, which it may have processed then."""
        return [sum(request.outcome != "refused" for _, request in requests) for _, requests in self.each()]

    def each(self) -> Iterator[tuple[tuple[int, int], Sequence[tuple[str, Request]]]]:
        """Yield each call's worker and number, and its requests with the behaviours of their connections."""
        for worker, calls in self.by_worker.items():
            for number, requests in calls.items():
                yield (worker, number), requests


def _calls(evidence: Evidence) -> _Calls:
    """Group the requests by the ids of their calls.

    With a manifest, the workers with odd numbers make wait-for-ready calls; other clients mark the ids of these calls.

    Raises:
        NotApplicableError: the client does not number its calls.
    """
    found: defaultdict[int, defaultdict[int, list[tuple[str, Request]]]]
    found = defaultdict(lambda: defaultdict(list))
    requests = [(visit.behaviour, request) for visit in evidence.timeline.visits for request in visit.requests]
    marked = set()
    for behaviour, request in requests:
        worker, _, rest = request.call.partition("-")
        number, _, mark = rest.partition("-")
        if worker.isdecimal() and number.isdecimal():
            found[int(worker)][int(number)].append((behaviour, request))
            if mark == _WAITS:
                marked.add(int(worker))
    if requests and not found:
        raise NotApplicableError("the client does not number its calls")
    return _Calls(found, marked if evidence.calls is None else {worker for worker in found if worker % 2})


def _connections(evidence: Evidence, fewest: int = _ENOUGH) -> Measure:
    return count_connections(len(evidence.visits), Range(fewest, math.inf))


def _answered(requests: Sequence[tuple[str, Request]]) -> bool:
    return any(request.outcome == "ok" for _, request in requests)


def _came_back(evidence: Evidence) -> Iterator[Measure]:
    """Check that the client came back after the outage. Only `recovery` judges a client that did not.

    Raises:
        NotApplicableError: the client did not come back.
    """
    yield _connections(evidence, 1)
    if len(evidence.visits) == 1:
        raise NotApplicableError("the client did not reconnect after the outage")


@clause("CH-6", Scenario.RESTART, needs=())
def rolling_restart(evidence: Evidence) -> Iterator[Measure]:
    """When a server sends GOAWAY and is replaced gracefully, no call is lost, and none that it took is sent again.

    Count unanswered calls, except those that a server did not accept and the last one of each worker.
    """
    yield _connections(evidence)
    try:
        calls = _calls(evidence)
    except NotApplicableError:  # fall back to the client's own counts
        if evidence.calls is None:
            raise
        yield count_calls("calls answered", evidence.calls.ok, Range(1, math.inf))
        yield count_calls("calls lost", evidence.calls.made - evidence.calls.ok, Range(0, 0))
        return
    answered = [_answered(requests) for _, requests in calls.each()]
    yield count_calls("calls answered", sum(answered), Range(1, math.inf))
    last = calls.last_ones()
    lost = [
        call
        for call, requests in calls.each()
        if not _answered(requests) and call not in last and not any(where == _REFUSING for where, _ in requests)
    ]
    yield count_calls("calls lost", len(lost) + calls.never_seen(), Range(0, 0))
    again = sum(taken > 1 for taken in calls.taken())
    yield count_calls("calls sent again although a server had taken them", again, Range(0, 0))


@clause("CH-7", Scenario.RESTART, needs=())
def refused_is_repeated(evidence: Evidence) -> Iterator[Measure]:
    """A call that the server did not process, according to its GOAWAY, is sent again."""
    yield _connections(evidence)
    calls = _calls(evidence)
    refusing = [visit for visit in evidence.visits if visit.behaviour == _REFUSING]
    if refusing and not any(visit.requests for visit in refusing):
        raise NotApplicableError("no call was sent to the server that refuses calls")
    refused = [requests for _, requests in calls.each() if any(where == _REFUSING for where, _ in requests)]
    yield count_calls("calls that a server did not process", len(refused), Range(1, math.inf))
    dropped = sum(1 for requests in refused if not _answered(requests))
    yield count_calls("of these, calls that were not sent again", dropped, Range(0, 0))


@clause("CH-7", Scenario.OUTAGE, needs=())
def lost_is_not_repeated(evidence: Evidence) -> Iterator[Measure]:
    """A call that the server may have processed is not sent again."""
    yield from _came_back(evidence)
    taken = _calls(evidence).taken()
    yield count_calls("calls that a server processed", len(taken), Range(1, math.inf))
    yield count_calls("calls sent again although a server had processed them", sum(n > 1 for n in taken), Range(0, 0))


@clause("CH-3", Scenario.OUTAGE, needs=())
def waits_for_ready(evidence: Evidence) -> Iterator[Measure]:
    """A wait-for-ready call survives failed attempts to connect.

    Allow each wait-for-ready worker one call that was lost with the broken connection before the server read it.
    """
    yield from _came_back(evidence)
    calls = _calls(evidence)
    if evidence.visits and not calls.waiting:
        raise NotApplicableError("no call is a wait-for-ready call, as far as the ids of its calls tell")
    never = calls.never_seen(calls.waiting)
    yield count_calls("calls that should have waited but never arrived", never, Range(0, len(calls.waiting)))


@clause("CH-7", Scenario.OUTAGE, needs=())
def accounts_for_calls(evidence: Evidence) -> Iterator[Measure]:
    """Every call ends with an answer or an error, and the client reports every call."""
    yield from _came_back(evidence)
    calls = _calls(evidence)
    if evidence.calls is None:
        raise NotApplicableError("the client does not report its calls")
    numbered = sum(max(each) + 1 for each in calls.by_worker.values())
    yield count_calls("calls that it made but did not report", max(0, numbered - evidence.calls.made), Range(0, 0))
    answered = sum(_answered(requests) for _, requests in calls.each())
    yield count_calls("answers that it reported but did not get", max(0, evidence.calls.ok - answered), Range(0, 0))
    yield count_calls(
        "calls that had not ended a second after the last one began", evidence.calls.unfinished, Range(0, 0)
    )
