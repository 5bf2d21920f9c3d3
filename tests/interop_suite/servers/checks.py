"""What was seen of a channel while something happened to its server, and the checks of it.

A check that finds nothing to measure fails: what did not occur shows nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from grpc_backoff import AttemptStarted, Connected, ConnectionEvent, Disconnected
from grpc_judge.matrix.scenarios import COMPRESSED
from tests.interop_suite.servers.traffic import Call, outcomes

CODE = grpc.StatusCode
TERMS = COMPRESSED  # the backoff that the channel is configured with

# How many seconds after its deadline a call may end, and how much later than the backoff allows it may be answered,
# because the machine may be busy.
LATE = 0.5

# How many seconds before or after its deadline a call may end if the server ended it because of the deadline.
AT_DEADLINE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen. Times are in seconds on the event loop's clock.

    Attributes:
        calls: all calls.
        events: all events of the channel before it was closed.
        began: when the calls began.
        struck: when it began to happen to the server.
        gone: when the server had ended or was frozen.
        back: when it served again or was resumed.
        over: when the last call had ended.
        state: the channel's state just after one of the last calls was answered.
        plain: the calls of a channel of plain grpcio, which the same happened to.
    """

    calls: Sequence[Call]
    events: Sequence[ConnectionEvent]
    began: float
    struck: float
    gone: float
    back: float
    over: float
    state: grpc.ChannelConnectivity
    plain: Sequence[Call] = ()

    @property
    def failed(self):
        """The calls that failed."""
        return [call for call in self.calls if not call.answered]

    @property
    def lost(self):
        """The calls that were lost."""
        return [call for call in self.calls if call.lost]

    @property
    def lost_by_plain(self):
        """The calls that plain grpcio lost."""
        return [call for call in self.plain if call.lost]

    @property
    def recovered(self):
        """The seconds from the server's return to the first answer after it; None if there was no answer."""
        answers = (call.ended - self.back for call in self.calls if call.answered and call.ended >= self.back)
        return min(answers, default=None)

    @property
    def connections(self):
        """How many connections were made."""
        return sum(isinstance(event, Connected) for event in self.events)

    @property
    def losses(self):
        """The losses of connections."""
        return [event for event in self.events if isinstance(event, Disconnected)]

    @property
    def starts(self):
        """When each attempt started."""
        return [event.at for event in self.events if isinstance(event, AttemptStarted)]

    @property
    def outages(self):
        """The length of each period without a connection, in seconds, and the attempts in it.

        It starts with the loss of a connection or the first call, and ends at READY or when the last call has ended.
        """
        began, attempts, outages = self.began, 0, []
        for event in self.events:
            if isinstance(event, AttemptStarted):
                attempts += 1
            elif isinstance(event, Connected):
                outages.append((event.at - began, attempts))
                attempts = 0
            elif isinstance(event, Disconnected):
                began = event.at
        return [*outages, (self.over - began, attempts)] if attempts else outages

    @property
    def waiting(self):
        """The wait-for-ready calls that were made while there was no connection and the server was not back yet.

        On a busy machine, the channel hears of the loss late. So calls that outlast the server's absence count as well.
        """
        lost = next((loss.at for loss in self.losses if loss.at >= self.struck), self.back)
        made = (call for call in self.calls if call.wait_for_ready and self.struck <= call.began < self.back)
        return [call for call in made if call.began >= lost or call.ended is None or call.ended >= self.back]


def check_always(seen, *, connections=2, excused=lambda call: False):
    """Check what holds whatever happens.

    Args:
        seen: what was seen.
        connections: how many connections the channel may make.
        excused: whether a call may fail with another code than UNAVAILABLE.
    """
    check_calls(seen, excused)
    check_settled(seen)
    check_attempts(seen)
    check_connections(seen, connections)


def check_calls(seen, excused):
    """CH-3, CH-7: no call runs beyond its deadline, and those that fail are UNAVAILABLE, except for excused ones."""
    hung = [call for call in seen.calls if call.ended is None]
    assert not hung, f"{len(hung)} calls hung"
    late = max((call.ended - call.deadline for call in seen.calls), default=0)
    assert late <= LATE, f"a call ended {late:.3f} s after its deadline, at most {LATE:g} s is allowed"
    others = [call for call in seen.failed if call.code is not CODE.UNAVAILABLE and not excused(call)]
    assert not others, f"{len(others)} calls ended with another code than UNAVAILABLE: {outcomes(others)}"


def dropped(call):
    """Excuse a call of a server that loses calls of any client when it shuts down: cancelled, cut, or as HTTP 500."""
    return call.code in (CODE.CANCELLED, CODE.INTERNAL, CODE.UNKNOWN)


def ended_by_deadline(call):
    """Excuse a call that met its deadline.

    Servers in Go and Java reset a call when its deadline passes. If the core's own timer for the deadline has not fired
    yet, the core reports the reset as CANCELLED, on any channel.
    """
    at_deadline = abs(call.ended - call.deadline) <= AT_DEADLINE
    return call.code is CODE.DEADLINE_EXCEEDED or (call.code is CODE.CANCELLED and at_deadline)


def reset_by_proxy(call):
    """Excuse a call that nginx reset with INTERNAL_ERROR because its server died in mid-response.

    The core reports this as INTERNAL, on any channel.
    """
    return call.code is CODE.INTERNAL and "RST_STREAM with error code 2" in call.details


def check_none_failed(seen):
    """CH-6: where only connections end, and do so gracefully, no call fails, unless plain grpcio's fail as well."""
    failed = f"{len(seen.failed)} of {len(seen.calls)} calls failed: {outcomes(seen.failed)}"
    assert len(seen.failed) <= sum(not call.answered for call in seen.plain), failed


def check_none_lost(seen):
    """CH-6: a server's graceful shutdown loses no call, unless plain grpcio loses as many.

    Running calls are answered, and waiting calls are sent afterwards. Calls that are neither sent nor wait-for-ready do
    fail meanwhile.
    """
    lost = seen.lost
    assert len(lost) <= len(seen.lost_by_plain), f"{len(lost)} of {len(seen.calls)} calls were lost: {outcomes(lost)}"
    running = [call for call in seen.calls if call.answered and call.began < seen.struck < call.ended]
    assert running, "no running call was answered"


def check_waited(seen):
    """CH-7: wait-for-ready calls made while the server is gone wait, and are answered once it is back."""
    failed = [call for call in seen.waiting if not call.answered]
    assert seen.waiting, "no wait-for-ready call was made without a connection"
    assert not failed, f"{len(failed)} of {len(seen.waiting)} waiting calls failed: {outcomes(failed)}"
    unsent = [call for call in seen.calls if call.wait_for_ready and call.unsent]
    assert not unsent, f"{len(unsent)} wait-for-ready calls failed for lack of a connection: {outcomes(unsent)}"


def check_recovered(seen):
    """CB-4: a server that comes back receives calls again after at most one gap of the backoff."""
    assert seen.recovered is not None, "no call was answered after the server's return"
    longest = TERMS.longest_gap_after(seen.back - seen.struck).high
    within = f"{longest:.3f} s of backoff and {LATE:g} s are allowed"
    assert seen.recovered <= longest + LATE, f"the first answer came {seen.recovered:.3f} s after the return, {within}"


def check_settled(seen):
    """CH-2: once a call has been answered after the server's return, all later calls are; at the end it is READY."""
    since = float("inf") if seen.recovered is None else seen.back + seen.recovered
    later = [call for call in seen.calls if call.began > since]
    failed = [call for call in later if not call.answered]
    assert later, "no call was made after the first answer since the server's return"
    assert not failed, f"{len(failed)} of {len(later)} calls after the first answer failed: {outcomes(failed)}"
    assert seen.state is grpc.ChannelConnectivity.READY, f"the channel is {seen.state.name} at the end"


def check_attempts(seen):
    """CB-5, CB-7: attempts are neither more frequent nor closer together than the backoff allows.

    The one after a connection that has answered calls may follow at once.
    """
    for seconds, attempts in seen.outages:
        most = TERMS.most_starts(seconds)
        assert attempts <= most, f"{attempts} attempts within {seconds:.2f} s without a connection, {most} are allowed"
    ends = [call.ended for call in seen.calls if call.answered]
    made = [event.at for event in seen.events if isinstance(event, Connected)]
    unpaid = [
        later - earlier
        for earlier, later in itertools.pairwise(seen.starts)
        if not any(earlier <= at <= ended <= later + LATE and at <= later for at in made for ended in ends)
    ]
    shortest = min(unpaid, default=float("inf"))
    least = TERMS.band(1).low
    assert shortest >= least, f"two attempts started {shortest:.3f} s apart, at least {least:g} s are required"


def check_connections(seen, most):
    """CB-7: the channel makes one new connection for each connection that the server or proxy ended.

    nginx ends one after each thousand requests.
    """
    most += len(seen.calls) // 1000
    assert 1 <= seen.connections <= most, f"{seen.connections} connections were made, 1 to {most} are allowed"


def check_noticed(seen, within):
    """CH-8: a connection to a frozen server is abandoned within the keepalive time and timeout."""
    assert seen.losses, "the connection to the frozen server was not abandoned"
    after = seen.losses[0].at - seen.gone
    assert 0 <= after <= within + LATE, f"the connection was abandoned after {after:.3f} s, expected {within:g} s"


def check_stayed(seen):
    """CB-7: the connection to a proxy stays open while the proxy answers, even with errors."""
    assert len(seen.losses) <= len(seen.calls) // 1000, (
        f"{len(seen.losses)} connections were lost, although the proxy answered"
    )
    failed = [call for call in seen.failed if seen.gone <= call.began < seen.back]
    assert failed, "the proxy answered no call instead of its server"
