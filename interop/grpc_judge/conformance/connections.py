"""Clauses about established connections: their loss, their replacement and the calls on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from grpc_judge.conformance.clause import Level, NotApplicableError, clause
from grpc_judge.conformance.evidence import Evidence
from grpc_judge.conformance.gaps import (
    AT_ONCE,
    accepted,
    after_loss,
    attempts,
    bounds,
    count_calls,
    count_connections,
    measured,
    shortest_initial,
    span,
    without_early,
)
from grpc_judge.conformance.scenario import SCHEDULE, Scenario
from grpc_judge.conformance.terms import Range
from grpc_judge.conformance.verdict import Measure

_TWO_GAPS = 3
_RESET = (*SCHEDULE, Scenario.RESET)
"""What shows whether SETTINGS reset the backoff."""
_MANY = 1000
_SLOWEST = 4
"""The longest wait between connections to a flapping server, in INITIAL_BACKOFFs, that still counts as trying."""


def _at_once(evidence: Evidence) -> Range:
    return Range(-math.inf, AT_ONCE * evidence.terms.initial)


def _spaced(evidence: Evidence, behaviour: str, spare: int = 0) -> Iterator[Measure]:
    """Yield the time between each connection with this behaviour and the next, and how many of these were too short.

    Up to `spare` of them may be, and are left out.
    """
    terms, visits = evidence.terms, evidence.visits
    each = (1 - terms.jitter) * shortest_initial(evidence)
    most = math.floor((evidence.seconds + terms.tolerance) / each) + 2
    found, due = [], -math.inf  # when the next connection is allowed
    for number, (visit, after) in enumerate(pairwise(visits[: 3 * most]), 1):
        if visit.accepted >= due - terms.tolerance:  # an early connection does not delay the next
            due = max(due, visit.accepted - each) + each
        if visit.behaviour == behaviour:
            allowed = Range(max(0.0, due - visit.accepted - terms.tolerance), math.inf)
            found.append(span(f"gap {number}", visit.accepted, after.accepted, allowed))
    soon = sum(1 for gap in found if gap.missed_by)
    yield count_connections(len(found), Range(1, math.inf), f"connections after {behaviour}")
    yield count_connections(soon, Range(0, spare), f"connections in {evidence.lasted:.1f} s that came too soon")
    yield from (gap for gap in found if soon > spare or not gap.missed_by)


def _after(evidence: Evidence, *behaviours: str) -> Iterator[Measure]:
    """Check the gap after each attempt with these behaviours against the client's schedule."""
    starts = accepted(evidence.visits)
    found = list(measured(starts, evidence))
    treated = [place for place, visit in enumerate(evidence.visits) if visit.behaviour in behaviours]
    told = not treated
    yield attempts(treated, 1)
    for place in treated:
        visit = evidence.visits[place]
        if place < len(found):
            gap = found[place]
            high = max(gap.allowed.high, evidence.end_of(visit) - visit.accepted + evidence.terms.tolerance)
            yield replace(gap, allowed=Range(gap.allowed.low, high))
            told = True
        elif evidence.over - visit.accepted > (
            longest := evidence.band(place + 1).high + evidence.terms.min_connect_timeout
        ):
            what = f"from attempt {place + 1}, which was the last, to the end of the trial"
            yield span(what, visit.accepted, evidence.over, Range(0.0, longest))
            told = True
    if not told:
        raise NotApplicableError("the trial ended before another attempt had to follow")


def _longest_gap_after(seconds: float, evidence: Evidence) -> float:
    """Return the longest gap that may be in progress when a series is this many seconds old."""
    n, earliest = 1, 0.0
    while n < _MANY:
        earliest += evidence.band(n).low
        if earliest > seconds:
            break
        n += 1
    return max(evidence.band(each).high for each in range(1, n + 1))


@clause("CB-6", Scenario.RESET)
def settings_reset(evidence: Evidence) -> Iterator[Measure]:
    """SETTINGS reset the backoff, so gaps start from INITIAL_BACKOFF again after the connection is lost.

    Check the gaps after a connection was lost. One early connection is ignored, as in `no_flood`.
    """
    yield count_connections(len(evidence.served), Range(1, math.inf), "connections that were served")
    series = after_loss(evidence)
    left = evidence.over - series[0] if series else 0.0
    own = evidence.schedule.fewest_starts(left, evidence.terms, evidence.slack)
    yield attempts(series, max(1, min(_TWO_GAPS, own)), "attempts seen after the loss")
    yield from list(measured(series, evidence))[:2]
    yield from bounds(evidence)


@clause("CB-7", Scenario.FLAPPING, Level.RECOMMENDED)
def no_flood(evidence: Evidence) -> Iterator[Measure]:
    """A server that hangs up after SETTINGS is dialled once per INITIAL_BACKOFF, however many calls are made.

    Allow one connection per INITIAL_BACKOFF, plus one. Another clause judges the connection after a GOAWAY.

    One connection may be early if the next one is correspondingly late: a client cannot always prevent a dial for a
    call that is assigned to a connection just as it ends. Repeated early connections are a flood.
    """
    visits = evidence.visits
    fewest = math.floor(evidence.seconds / (_SLOWEST * shortest_initial(evidence)))
    yield count_connections(len(visits), Range(max(2, fewest), math.inf), f"connections in {evidence.lasted:.1f} s")
    yield from _spaced(evidence, "settings_then_close")


@clause("CB-8", Scenario.UNSTABLE, Level.RECOMMENDED)
def stable_after(evidence: Evidence) -> Iterator[Measure]:
    """With `stable-after`, a connection lost too soon counts as a failed attempt, so the backoff grows.

    Ignore one early connection, as `no_flood` does, or two in a row, since here the connection that was dialled for one
    call also ends just as the next is assigned to it. Each may delay the next attempt by one INITIAL_BACKOFF.
    """
    starts = accepted(evidence.visits)
    series = without_early(starts, evidence, in_a_row=2)
    delay = (len(starts) - len(series)) * evidence.terms.initial
    left = evidence.seconds - delay
    own = evidence.schedule.fewest_starts(left, evidence.terms, evidence.slack)
    yield attempts(series, min(own, evidence.terms.fewest_starts(left)))
    for gap, (start, after) in zip(measured(series, evidence), pairwise(series), strict=True):
        delayed = any(start < early < after for early in starts)
        high = gap.allowed.high + (delay if delayed else 0.0)
        yield replace(gap, allowed=Range(gap.allowed.low, high))


@clause("CB-4", Scenario.OUTAGE)
def recovery(evidence: Evidence) -> Iterator[Measure]:
    """A server that comes back is dialled when the next attempt is due, and calls are then answered.

    Check that the client reconnects within the longest possible gap, since refused dials are not always visible.
    """
    gone = evidence.timeline.refusing[0] if evidence.timeline.refusing else None
    if gone is None or gone.end is None:  # without a connection there was no outage
        yield count_connections(len(evidence.visits), Range(2, math.inf))
        return
    back = [visit for visit in evidence.visits if visit.accepted >= gone.end]
    yield count_connections(len(back), Range(1, math.inf), "connections after the server's return")
    for visit in back[:1]:
        longest = _longest_gap_after(gone.end - gone.begin, evidence)
        yield span("from the server's return to the next attempt", gone.end, visit.accepted, Range(0.0, longest))
    answered = sum(request.outcome == "ok" for visit in back for request in visit.requests)
    yield count_calls("calls answered after the server's return", answered, Range(1, math.inf))
    yield from bounds(evidence)


@clause("CB-1", Scenario.RESTART, needs=())
def first_attempt(evidence: Evidence) -> Iterator[Measure]:
    """The first attempt starts as soon as a call needs a connection."""
    yield attempts(evidence.visits, 1)
    for visit in evidence.visits[:1]:
        allowed = _at_once(evidence)
        if evidence.calls is None:
            raise NotApplicableError(
                f"it dialled {visit.accepted - evidence.began:.2f} s after its start; allowed is {allowed.high:g} s "
                "after its first call, whose time is known only of a client with a manifest"
            )
        yield span("from the first call to the first attempt", evidence.wanted, visit.accepted, allowed)


@clause("CB-7", Scenario.RESTART, Level.RECOMMENDED, needs=_RESET)
def lost_is_replaced(evidence: Evidence) -> Iterator[Measure]:
    """A lost connection that lasted longer than INITIAL_BACKOFF is replaced at once if calls are made.

    Check how soon lost connections are replaced. A backoff that SETTINGS did not reset may delay the replacement.
    """
    yield count_connections(len(evidence.visits), Range(2, math.inf))
    losses = [visit for visit in evidence.visits if visit.ended is not None and visit.ended < evidence.over]
    longest_initial = max(evidence.terms.initial, evidence.band(1).high)
    for number, visit in enumerate(losses, 1):
        assert visit.ended is not None
        lived = visit.ended - visit.accepted
        follow = [after.accepted for after in evidence.visits if after.number > visit.number]
        young = lived < longest_initial + evidence.terms.tolerance
        if young and follow:
            continue
        at_once = longest_initial if young else _at_once(evidence).high
        allowed = at_once if evidence.resets else max(at_once, evidence.band(number).high - lived)
        until = follow[0] if follow else evidence.over
        if follow or until - visit.ended > allowed:
            what = f"from the end of connection {visit.number} to the next attempt"
            yield span(what, visit.ended, until, Range(-math.inf, allowed))
    yield from bounds(evidence)


@clause("CB-4", Scenario.OUTAGE, needs=_RESET)
def refused_backs_off(evidence: Evidence) -> Iterator[Measure]:
    """A refused dial counts as a failed attempt, so the backoff grows.

    Check the gaps between refused dials, which are visible only with special permission.
    """
    gone = evidence.timeline.refusing[0] if evidence.timeline.refusing else None
    if evidence.timeline.refused is None:
        raise NotApplicableError("refused dials are visible only with permission to open a raw socket")
    if gone is None or gone.end is None:
        yield count_connections(len(evidence.visits), Range(2, math.inf))
        return
    if not evidence.resets:
        raise NotApplicableError("SETTINGS did not reset its backoff, so the outage did not start a new series")
    dials = [at for at in evidence.timeline.refused if gone.begin <= at < gone.end]
    yield attempts(dials, 1, "refused dials")
    if dials and len(dials) < _TWO_GAPS:
        raise NotApplicableError(f"too few dials were refused: {len(dials)}")
    most = 3 * evidence.terms.most_starts(gone.end - gone.begin)
    yield from measured(without_early(dials[:most], evidence), evidence)


@clause("CB-4", Scenario.FAILURES)
def reset_backs_off(evidence: Evidence) -> Iterator[Measure]:
    """A connection that the server resets at once counts as a failed attempt, so the backoff grows."""
    yield from _after(evidence, "accept_reset")


@clause("CB-4", Scenario.FAILURES)
def garbage_backs_off(evidence: Evidence) -> Iterator[Measure]:
    """An attempt answered in another protocol, such as HTTP/1.1, has failed, so the backoff grows."""
    yield from _after(evidence, "tls_garbage", "http1_answer")


@clause("CB-7", Scenario.FLAPPING, Level.RECOMMENDED)
def goaway_backs_off(evidence: Evidence) -> Iterator[Measure]:
    """A server that sends GOAWAY after SETTINGS and hangs up is dialled once per INITIAL_BACKOFF."""
    yield from _spaced(evidence, "enhance_your_calm")


@clause("CB-7", Scenario.DRAINED, Level.RECOMMENDED)
def drained_backs_off(evidence: Evidence) -> Iterator[Measure]:
    """A server that drains each connection before it takes a call is dialled once per INITIAL_BACKOFF."""
    yield from _spaced(evidence, "settings_then_goaway", spare=1)  # a call may enter a connection as it is drained


@clause("CB-7", Scenario.LIMITED, Level.RECOMMENDED, needs=())
def served_is_replaced(evidence: Evidence) -> Iterator[Measure]:
    """A connection that has answered a call is replaced at once if calls are made, however soon it ended.

    Check how soon the next connection follows the end of each connection that answered a call.
    """
    yield count_connections(len(evidence.visits), Range(2, math.inf))
    for visit, after in pairwise(evidence.visits):
        if visit.ended is not None and any(request.outcome == "ok" for request in visit.requests):
            what = f"from the end of connection {visit.number} to the next attempt"
            yield span(what, visit.ended, after.accepted, Range(-math.inf, _at_once(evidence).high))


@clause("CB-7", Scenario.DEAD_UPSTREAM, Level.RECOMMENDED)
def unserved_is_held_back(evidence: Evidence) -> Iterator[Measure]:
    """A server that answers calls with UNAVAILABLE and ends each connection is dialled once per INITIAL_BACKOFF.

    Two connections may be early: one may be made on credit while calls run, and a call may enter one as it ends.
    """
    yield from _spaced(evidence, "rolling_restart", spare=2)
