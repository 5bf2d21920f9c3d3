"""The demands on our channel, whatever happens to its server: when each applies, and how it is measured.

This module only evaluates observations; it does not make calls or read a clock.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import grpc

from grpc_judge.conformance import Measure, Range, Unit, Verdict
from grpc_judge.conformance.clause import NotApplicableError, verdict_on
from grpc_judge.servers.happenings import AGE, KEEPALIVE, RELOADS, Happening
from grpc_judge.servers.observation import Observation
from grpc_judge.servers.traffic import Call, Ended, outcomes

_LATE = 0.5
"""How many seconds after its deadline a call may end, and how much later than the backoff allows it may be answered,
because the machine may be busy."""

_AT_DEADLINE = 0.1
"""How many seconds before or after its deadline a call may end if the server ended it because of the deadline."""

_NONE = Range(0, 0)
_ALL = frozenset(Happening)
_FROZEN = frozenset({Happening.FROZEN, Happening.PINGED})
_GRACEFUL = frozenset({Happening.DRAINED, Happening.AGED, Happening.RELOADED})
_RESTARTED = frozenset({Happening.KILLED, Happening.DRAINED})


@dataclass(frozen=True, slots=True)
class Demand:
    """One requirement on our channel.

    Attributes:
        name: its name in tables.
        rule: the rule that it tests.
        measure: yields figures with their allowed ranges; if it yields none, the demand fails. Its docstring says what
            is required.
        happenings: the happenings to which it applies.
    """

    name: str
    rule: str
    measure: Callable[[Observation], Iterable[Measure]]
    happenings: AbstractSet[Happening] = _ALL

    def judge(self, observation: Observation) -> Verdict:
        """Return the verdict on this observation."""
        return verdict_on(self.name, self.rule, lambda: self.measure(observation))


def judge(observation: Observation) -> tuple[Verdict, ...]:
    """Return the verdict of each demand that applies."""
    return tuple(demand.judge(observation) for demand in DEMANDS if observation.happening in demand.happenings)


def recovery(observation: Observation) -> float | None:
    """Return the seconds from the server's return to the first answer after it; None if there was no answer."""
    answers = (call.ended.at for call in observation.calls if call.answered and call.ended is not None)
    first = min((at for at in answers if at >= observation.back), default=None)
    return None if first is None else first - observation.back


def _calls(what: str, number: int, allowed: Range = _NONE) -> Measure:
    return Measure(what=what, seen=number, allowed=allowed, unit=Unit.CALLS)


def _on_time(observation: Observation) -> Iterator[Measure]:
    """Require that no call runs beyond its deadline."""
    yield _calls("calls that hung", sum(call.ended is None for call in observation.calls))
    overruns = [call.ended.at - call.deadline for call in observation.calls if call.ended is not None]
    for latest in sorted(overruns)[-1:]:
        yield Measure(what="beyond a deadline", seen=max(0.0, latest), allowed=Range(0, _LATE))


def _codes(observation: Observation) -> Iterator[Measure]:
    """Require that failed calls end with UNAVAILABLE; if the server is frozen, they may exceed their deadlines."""
    others = [
        call for call in observation.calls if call.ended is not None and not _may_end_so(call, call.ended, observation)
    ]
    yield _calls(f"calls that ended with another code{outcomes(others)}", len(others))


def _may_end_so(call: Call, ended: Ended, observation: Observation) -> bool:
    match ended.code:
        case grpc.StatusCode.OK | grpc.StatusCode.UNAVAILABLE:
            return True
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return observation.happening in _FROZEN
        case grpc.StatusCode.CANCELLED if observation.happening in _FROZEN:
            # Servers in Go and Java reset a call when its deadline passes. If the core's own timer for the deadline has
            # not fired yet, the core reports the reset as CANCELLED, on any channel.
            return abs(ended.at - call.deadline) <= _AT_DEADLINE
        case grpc.StatusCode.INTERNAL if observation.happening is Happening.UPSTREAM_DOWN:
            # nginx may reset a call with INTERNAL_ERROR if its server dies in mid-response, which the core reports as
            # INTERNAL, on any channel.
            return "RST_STREAM with error code 2" in ended.details
        case grpc.StatusCode.CANCELLED:
            return observation.happening is Happening.DRAINED and not observation.server.graceful
    return False


def _lost(observation: Observation) -> Iterator[Measure]:
    """Require that a graceful shutdown loses no calls: running calls are answered, waiting calls sent afterwards."""
    if observation.happening is Happening.DRAINED and not observation.server.graceful:
        raise NotApplicableError("the server loses calls of any client when it shuts down")
    yield _calls("calls lost", sum(call.lost for call in observation.calls))
    if observation.happening is not Happening.DRAINED:  # during a drain, fail-fast calls do fail
        yield _calls("calls that failed", sum(not call.answered for call in observation.calls))
    elif observation.server.delays:
        yield _calls("calls running at the time that were answered", len(observation.survivors), Range(1, math.inf))


def _waiting(observation: Observation) -> Iterator[Measure]:
    """Require that wait-for-ready calls made while the server is gone wait and are answered once it is back."""
    waiting = observation.waiting
    yield _calls("wait-for-ready calls made without a connection", len(waiting), Range(1, math.inf))
    yield _calls("of those, calls that failed", sum(not call.answered for call in waiting))
    unsent = [
        call for call in observation.calls if call.wait_for_ready and call.ended is not None and call.ended.unsent
    ]
    yield _calls("wait-for-ready calls that failed for lack of a connection", len(unsent))


def _recovers(observation: Observation) -> Iterator[Measure]:
    """Require that a server that comes back receives calls again after at most one gap of the backoff."""
    seconds = recovery(observation)
    yield _calls("answers since its return", 0 if seconds is None else 1, Range(1, math.inf))
    if seconds is None:
        return
    terms = observation.terms
    unit = terms.longest_gap_after(observation.back - observation.struck).high
    allowed = 1 + _LATE / unit
    yield Measure(what="recovered in", seen=seconds / unit, allowed=Range(0, allowed), unit=Unit.BACKOFFS)


def _settled(observation: Observation) -> Iterator[Measure]:
    """Require that once a call has been answered after the server's return, all later calls are answered."""
    seconds = recovery(observation)
    after = [] if seconds is None else [call for call in observation.calls if call.began > observation.back + seconds]
    yield _calls("calls since then", len(after), Range(1, math.inf))
    yield _calls("of those, calls that failed", sum(not call.answered for call in after))


def _starts(observation: Observation) -> Iterator[Measure]:
    """Require that attempts are neither more frequent nor closer together than the backoff allows."""
    terms = observation.terms
    for outage in observation.outages():
        most = terms.most_starts(outage.ended - outage.began)
        what = f"attempts within {outage.ended - outage.began:.2f} s without a connection"
        yield Measure(what=what, seen=outage.attempts, allowed=Range(0, most), unit=Unit.ATTEMPTS)
    gaps = [later - earlier for earlier, later in itertools.pairwise(observation.starts)]
    for shortest in sorted(gaps)[:1]:
        yield Measure(what="shortest gap", seen=shortest, allowed=Range(terms.band(1).low, math.inf))


def _connections(observation: Observation) -> Iterator[Measure]:
    """Require that the channel makes one new connection for each connection that the server or proxy ended."""
    match observation.happening:
        case Happening.UPSTREAM_DOWN:
            most = 1
        case Happening.RELOADED:
            most = 1 + RELOADS
        case Happening.AGED:
            most = 1 + math.floor((observation.over - observation.began) / (0.9 * AGE - observation.terms.tolerance))
        case _:
            most = 2
    seen = observation.connections
    yield Measure(what="connections made", seen=seen, allowed=Range(1, most), unit=Unit.CONNECTIONS)


def _ready(observation: Observation) -> Iterator[Measure]:
    """Require that at the end, the channel is READY."""
    standing = int(observation.state is grpc.ChannelConnectivity.READY)
    yield Measure(what="open at the end", seen=standing, allowed=Range(1, 1), unit=Unit.CONNECTIONS)


def _noticed(observation: Observation) -> Iterator[Measure]:
    """Require that a connection to a frozen server is abandoned within the keepalive time and timeout."""
    for loss in observation.losses[:1]:
        allowed = Range(0, 2 * KEEPALIVE + _LATE)
        yield Measure(what="noticed after", seen=loss.at - observation.gone, allowed=allowed)


def _stays(observation: Observation) -> Iterator[Measure]:
    """Require that the connection to a proxy stays open while the proxy answers, even with errors."""
    lost = len(observation.losses)
    yield Measure(what="connections lost", seen=lost, allowed=_NONE, unit=Unit.CONNECTIONS)
    failed = [call for call in observation.meanwhile if not call.answered]
    yield _calls("calls that the proxy answered instead of its server", len(failed), Range(1, math.inf))


DEMANDS = (
    Demand("lost", "CH-6", _lost, _GRACEFUL),
    Demand("waiting", "CH-7", _waiting, _RESTARTED),
    Demand("on-time", "CH-3", _on_time),
    Demand("codes", "CH-7", _codes),
    Demand("recovery", "CB-4", _recovers, _ALL - {Happening.AGED, Happening.RELOADED}),
    Demand("settled", "CH-2", _settled),
    Demand("attempts", "CB-5", _starts),
    Demand("connections", "CB-7", _connections),
    Demand("noticed", "CH-8", _noticed, frozenset({Happening.PINGED})),
    Demand("stays-ready", "CB-7", _stays, frozenset({Happening.UPSTREAM_DOWN})),
    Demand("ready", "CH-2", _ready),
)
"""All demands."""
