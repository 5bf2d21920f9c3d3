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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One requirement on our channel.

    Attributes:
        name: its name in tables.
        rule: the rule that it tests.
        says: what it requires, in one sentence.
        measure: yields figures with their allowed ranges; if it yields none, the demand fails.
        happenings: the happenings to which it applies.
    """

    name: str
    rule: str
    says: str
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
    yield _calls("calls that hung", sum(call.ended is None for call in observation.calls))
    overruns = [call.ended.at - call.deadline for call in observation.calls if call.ended is not None]
    for latest in sorted(overruns)[-1:]:
        yield Measure(what="beyond a deadline", seen=max(0.0, latest), allowed=Range(0, _LATE))


def _codes(observation: Observation) -> Iterator[Measure]:
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
    if observation.happening is Happening.DRAINED and not observation.server.graceful:
        raise NotApplicableError("the server loses calls of any client when it shuts down")
    yield _calls("calls lost", sum(call.lost for call in observation.calls))
    if observation.happening is not Happening.DRAINED:  # during a drain, fail-fast calls do fail
        yield _calls("calls that failed", sum(not call.answered for call in observation.calls))
    elif observation.server.delays:
        yield _calls("calls running at the time that were answered", len(observation.survivors), Range(1, math.inf))


def _waiting(observation: Observation) -> Iterator[Measure]:
    waiting = observation.waiting
    yield _calls("wait-for-ready calls made without a connection", len(waiting), Range(1, math.inf))
    yield _calls("of those, calls that failed", sum(not call.answered for call in waiting))
    unsent = [
        call for call in observation.calls if call.wait_for_ready and call.ended is not None and call.ended.unsent
    ]
    yield _calls("wait-for-ready calls that failed for lack of a connection", len(unsent))


def _recovers(observation: Observation) -> Iterator[Measure]:
    """Allow for the longest gap that can have been in progress when the server came back."""
    seconds = recovery(observation)
    yield _calls("answers since its return", 0 if seconds is None else 1, Range(1, math.inf))
    if seconds is None:
        return
    terms = observation.terms
    unit = terms.longest_gap_after(observation.back - observation.struck).high
    allowed = 1 + _LATE / unit
    yield Measure(what="recovered in", seen=seconds / unit, allowed=Range(0, allowed), unit=Unit.BACKOFFS)


def _settled(observation: Observation) -> Iterator[Measure]:
    seconds = recovery(observation)
    after = [] if seconds is None else [call for call in observation.calls if call.began > observation.back + seconds]
    yield _calls("calls since then", len(after), Range(1, math.inf))
    yield _calls("of those, calls that failed", sum(not call.answered for call in after))


def _starts(observation: Observation) -> Iterator[Measure]:
    terms = observation.terms
    for outage in observation.outages():
        most = terms.most_starts(outage.ended - outage.began)
        what = f"attempts within {outage.ended - outage.began:.2f} s without a connection"
        yield Measure(what=what, seen=outage.attempts, allowed=Range(0, most), unit=Unit.ATTEMPTS)
    gaps = [later - earlier for earlier, later in itertools.pairwise(observation.starts)]
    for shortest in sorted(gaps)[:1]:
        yield Measure(what="shortest gap", seen=shortest, allowed=Range(terms.band(1).low, math.inf))


def _connections(observation: Observation) -> Iterator[Measure]:
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
    standing = int(observation.state is grpc.ChannelConnectivity.READY)
    yield Measure(what="open at the end", seen=standing, allowed=Range(1, 1), unit=Unit.CONNECTIONS)


def _noticed(observation: Observation) -> Iterator[Measure]:
    for loss in observation.losses[:1]:
        allowed = Range(0, 2 * KEEPALIVE + _LATE)
        yield Measure(what="noticed after", seen=loss.at - observation.gone, allowed=allowed)


def _stays(observation: Observation) -> Iterator[Measure]:
    lost = len(observation.losses)
    yield Measure(what="connections lost", seen=lost, allowed=_NONE, unit=Unit.CONNECTIONS)
    failed = [call for call in observation.meanwhile if not call.answered]
    yield _calls("calls that the proxy answered instead of its server", len(failed), Range(1, math.inf))


DEMANDS = (
    Demand(
        name="lost",
        rule="CH-6",
        says="A graceful shutdown loses no calls: running calls are answered, and waiting calls are sent afterwards.",
        measure=_lost,
        happenings=_GRACEFUL,
    ),
    Demand(
        name="waiting",
        rule="CH-7",
        says="Wait-for-ready calls made while the server is gone wait, and are answered once it is back.",
        measure=_waiting,
        happenings=_RESTARTED,
    ),
    Demand(name="on-time", rule="CH-3", says="No call runs beyond its deadline.", measure=_on_time),
    Demand(
        name="codes",
        rule="CH-7",
        says="A call that fails ends with UNAVAILABLE; if the server is frozen, it may exceed its deadline instead.",
        measure=_codes,
    ),
    Demand(
        name="recovery",
        rule="CB-4",
        says="A server that comes back receives calls again after at most one gap of the backoff.",
        measure=_recovers,
        happenings=_ALL - {Happening.AGED, Happening.RELOADED},
    ),
    Demand(
        name="settled",
        rule="CH-2",
        says="Once a call has been answered after the server's return, all later calls are answered.",
        measure=_settled,
    ),
    Demand(
        name="attempts",
        rule="CB-5",
        says="Attempts are neither more frequent nor closer together than the backoff allows.",
        measure=_starts,
    ),
    Demand(
        name="connections",
        rule="CB-7",
        says="The channel makes one new connection for each connection that the server or proxy ended.",
        measure=_connections,
    ),
    Demand(
        name="noticed",
        rule="CH-8",
        says="A connection to a frozen server is abandoned within the times set for keepalive and the ping timeout.",
        measure=_noticed,
        happenings=frozenset({Happening.PINGED}),
    ),
    Demand(
        name="stays-ready",
        rule="CB-7",
        says="The connection to a proxy stays open as long as the proxy answers, even if it answers with errors.",
        measure=_stays,
        happenings=frozenset({Happening.UPSTREAM_DOWN}),
    ),
    Demand(name="ready", rule="CH-2", says="At the end, the channel is READY.", measure=_ready),
)
"""All demands."""
