"""Stages each scenario: the server's script, the client's settings, and the duration.

Time is compressed for clients that can be configured, because a backoff of a fifth of a second follows the same
algorithm as one of a second. Each duration is computed from the settings as the time that the slowest conforming client
needs, so a client that has made too few attempts by then does not conform.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from grpc_judge import flaky
from grpc_judge.clients.peer import Peer, Setting
from grpc_judge.conformance import CLOSE_WITHIN, PROTOCOL, Scenario, Terms

COMPRESSED: Final = replace(PROTOCOL, initial=0.2, cap=1.6, min_connect_timeout=1.0, tolerance=0.05)
"""A fifth of the protocol's INITIAL_BACKOFF, which is twice the minimum that grpcio accepts.

The tolerance is half of the official one, not a fifth. It covers delays by the network and by a busy machine, which do
not get shorter with the backoff: waking a process may take 20 ms. With this tolerance, the ranges of a gap and of the
gap after the next still do not overlap, as a verdict requires.
"""

SCALED: Final = replace(COMPRESSED, cap=PROTOCOL.cap / 5, min_connect_timeout=PROTOCOL.min_connect_timeout / 5)
"""All of the protocol's values divided by five."""

STEADY: Final = replace(COMPRESSED, cap=2 * COMPRESSED.initial)
"""Produces many gaps of the same length in a short time, which shows the jitter."""

_OFFICIAL_LENGTH = 540.0
"""The length of the official test, in units of INITIAL_BACKOFF (one second in that test)."""
_SLACK = 0.5
"""How many seconds longer every scenario lasts than the slowest client needs, since the machine may be slow."""


class Pace(enum.Enum):
    """How fast time passes in a scenario, compared with the protocol's values."""

    COMPRESSED = "compressed"
    """The client is configured with short backoffs and a MAX_BACKOFF that it reaches soon."""
    SCALED = "scaled"
    """The client is configured with a fifth of each of the protocol's values, and everything lasts a fifth of FULL."""
    REAL = "real"
    """The client uses the protocol's own values. A reasonable time shows only its first attempts."""
    FULL = "full"
    """Like REAL, but as long as the official test wherever a longer time shows more."""

    @property
    def told(self) -> bool:
        """Whether the client is configured with values other than the protocol's."""
        return self in {Pace.COMPRESSED, Pace.SCALED}

    @property
    def long(self) -> bool:
        """Whether the scenario lasts as long as the official test, measured in units of INITIAL_BACKOFF."""
        return self in {Pace.SCALED, Pace.FULL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """How a scenario is staged. Attributes that depend on the terms are functions of them.

    Attributes:
        scenario: the scenario.
        script: what the server does.
        seconds: how long the client makes calls.
        needs: the settings that a client must have for compressed time; without them, time is real.
        demands: the settings that a client must have in order to take part.
        compressible: whether compressed time makes the scenario shorter.
        clients: how many clients take part, each with its own server.
        tls: whether connections use TLS.
        trusted: whether the client trusts the server's certificate.
        serves: when `then` starts, in seconds after the last client has connected; None if there is no second script.
        then: the servers' second script, which starts together with a reset of all connections.
        clients_told: how many clients take part if time is not real; 0 for as many as in real time.
        soon_capped: whether configurable clients get a MAX_BACKOFF of twice INITIAL_BACKOFF.
        counts_refused: whether to watch for refused dials.
        floods: whether each attempt fails at once, so that a client without backoff floods the server.
    """

    scenario: Scenario
    script: Callable[[Terms], flaky.Script]
    seconds: Callable[[Terms, Pace], float]
    needs: tuple[Setting, ...] = (Setting.INITIAL, Setting.MAX)
    demands: tuple[Setting, ...] = ()
    compressible: bool = True
    clients: int = 1
    tls: bool = False
    trusted: bool = True
    serves: Callable[[Terms], float] | None = None
    then: Callable[[Terms, Pace], flaky.Script] | None = None
    clients_told: int = 0
    soon_capped: bool = False
    counts_refused: bool = False
    floods: bool = False

    @property
    def settled(self) -> int | None:
        """How many connections after the start of `then` settle every verdict; None if no number does."""
        return _SETTLED if self.floods else None

    def pace_for(self, peer: Peer, *, full: bool) -> Pace:
        """Return the pace at which this peer runs."""
        if self.compressible and peer.can_be_told(*self.needs):
            return Pace.SCALED if full else Pace.COMPRESSED
        return Pace.FULL if full else Pace.REAL

    def clients_for(self, pace: Pace) -> int:
        """Return the number of clients that take part."""
        return self.clients_told or self.clients if pace.told else self.clients

    def terms_for(self, pace: Pace) -> Terms:
        """Return the terms by which a peer at this pace is judged."""
        if self.soon_capped and pace.told:
            return STEADY
        return {Pace.COMPRESSED: COMPRESSED, Pace.SCALED: SCALED}.get(pace, PROTOCOL)

    def settings_for(self, peer: Peer, pace: Pace) -> dict[Setting, int]:
        """Return the peer's settings in milliseconds; empty if it uses the protocol's values."""
        terms = self.terms_for(pace)
        demanded = {Setting.STABLE_AFTER: _STABLE_AFTER * terms.initial}
        told = {setting: seconds for setting, seconds in demanded.items() if setting in self.demands}
        if pace.told:
            told |= {
                Setting.INITIAL: terms.initial,
                Setting.MAX: terms.cap,
                Setting.MIN_CONNECT_TIMEOUT: terms.min_connect_timeout,
            }
        return {setting: round(1000 * seconds) for setting, seconds in told.items() if peer.can_be_told(setting)}


_SETTLED = 300
"""Far more connections than a conforming client can make. No clause looks at more than this."""

_STABLE_AFTER = 10
"""The value of `stable-after`, in units of INITIAL_BACKOFF: longer than any connection lasts in its scenario."""

_Seconds = Callable[[Terms, Pace], float]


def _gaps(compressed: int, real: int, full: int) -> _Seconds:
    """Return the duration of a series of this many gaps, each as long as it may be."""
    count = _by_pace(compressed, real, full)
    return lambda terms, pace: _longest(terms, count[pace]) + _SLACK


def _by_pace(compressed: float, real: float, full: float) -> Mapping[Pace, float]:
    return {Pace.COMPRESSED: compressed, Pace.SCALED: full, Pace.REAL: real, Pace.FULL: full}


def _longest(terms: Terms, gaps: float) -> float:
    return sum(terms.band(n).high for n in range(1, int(gaps) + 1))


def _hang_up_seconds(terms: Terms, pace: Pace) -> float:
    if pace.long:
        return _OFFICIAL_LENGTH * terms.initial
    return _longest(terms, terms.first_capped + 1 if pace is Pace.COMPRESSED else 5) + _SLACK


def _silent_seconds(terms: Terms, pace: Pace) -> float:
    attempts = _by_pace(compressed=6, real=2, full=8)[pace]
    limits = (terms.outlasting(n) + terms.tolerance for n in range(1, int(attempts) + 1))
    return sum(limits) + CLOSE_WITHIN + _SLACK


def _in_initials(compressed: float, real: float, full: float) -> _Seconds:
    count = _by_pace(compressed, real, full)
    return lambda terms, pace: count[pace] * terms.initial


_FAILURES_FIRST = 3
_LIVES = 4
"""How long a served connection lasts, in units of INITIAL_BACKOFF: long enough to be replaced at once (CB-7)."""


def _reset_seconds(terms: Terms, _pace: Pace) -> float:
    return 2 * (_longest(terms, _FAILURES_FIRST) + _LIVES * terms.initial) + _longest(terms, 2) + 2 * _SLACK


def _outage(terms: Terms, pace: Pace) -> float:
    return (30 if pace.long else 8) * terms.initial


def _outage_seconds(terms: Terms, pace: Pace) -> float:
    gone = _outage(terms, pace)
    return _LIVES * terms.initial + gone + terms.longest_gap_after(gone).high + 2 * _SLACK


def _lives(terms: Terms) -> float:
    return _LIVES * terms.initial


_WORKS_SLOWLY = flaky.Working(latency=0.05)
"""Slow enough that calls are in progress when the connection is lost."""
_RUNNING = 0.1
"""How long a call takes in a rolling restart, in seconds: long enough that most workers have one running at GOAWAY."""
_HANGS_UP = flaky.SettingsThenClose(after=0.02)
_HANGS_UP_AND_SAYS_SO = [flaky.Step(_HANGS_UP, times=4), flaky.Step(flaky.EnhanceYourCalm(after=0.02), times=3)]
_YOUNG = 0.25
"""How soon a connection ends that would be held back if it had answered nothing, in units of INITIAL_BACKOFF."""
_ALL_LIMITS = (Setting.INITIAL, Setting.MAX, Setting.MIN_CONNECT_TIMEOUT)


STAGINGS: Final = {
    staging.scenario: staging
    for staging in (
        Staging(
            scenario=Scenario.HANG_UP,
            script=lambda _: flaky.AcceptClose(),
            seconds=_hang_up_seconds,
            clients_told=4,
            floods=True,
        ),
        Staging(
            scenario=Scenario.STEADY,
            script=lambda _: flaky.AcceptClose(),
            seconds=_gaps(22, 6, 12),
            soon_capped=True,
            floods=True,
        ),
        Staging(
            scenario=Scenario.FAILURES,
            script=lambda _: [
                *(
                    flaky.Step(each, times=1)
                    for each in (flaky.AcceptReset(), flaky.TlsGarbage(), flaky.AcceptReset(), flaky.Http1Answer())
                ),
                flaky.AcceptReset(),
            ],
            seconds=_gaps(5, 4, 8),
            floods=True,
        ),
        Staging(
            scenario=Scenario.SLOW_FAILURE,
            script=lambda terms: flaky.AcceptClose(after=0.75 * terms.initial),
            seconds=_gaps(4, 4, 6),
        ),
        Staging(
            scenario=Scenario.SILENT,
            script=lambda terms: [
                flaky.Step(flaky.Silent(), times=1),
                flaky.Step(flaky.Trickle(3 * terms.min_connect_timeout), times=1),
                flaky.Silent(),
            ],
            seconds=_silent_seconds,
            needs=_ALL_LIMITS,
        ),
        Staging(
            scenario=Scenario.TLS_SILENT,
            script=lambda _: flaky.Silent(tls=False),
            seconds=lambda terms, _: 2 * (terms.min_connect_timeout + terms.tolerance) + CLOSE_WITHIN + _SLACK,
            needs=_ALL_LIMITS,
            tls=True,
        ),
        Staging(
            scenario=Scenario.SLOW_SETTINGS,
            script=lambda terms: flaky.SlowSettings(0.7 * terms.min_connect_timeout),
            seconds=lambda terms, _: terms.min_connect_timeout + 2 * _SLACK,
            needs=_ALL_LIMITS,
        ),
        Staging(
            scenario=Scenario.HANDSHAKE,
            script=lambda _: flaky.AcceptClose(tls=True),
            seconds=_gaps(5, 4, 8),
            tls=True,
            floods=True,
        ),
        Staging(
            scenario=Scenario.TLS_FAILURE,
            script=lambda _: [
                *(flaky.Step(each, times=1) for each in (flaky.Working(), flaky.TlsGarbage(), flaky.AcceptClose())),
                flaky.Working(),
            ],
            seconds=_gaps(5, 4, 8),
            tls=True,
            trusted=False,
            floods=True,
        ),
        Staging(
            scenario=Scenario.RESET,
            script=lambda terms: [
                *(
                    2
                    * [
                        flaky.Step(flaky.AcceptClose(), times=_FAILURES_FIRST),
                        flaky.Step(flaky.Working(lives=_lives(terms)), times=1),
                    ]
                ),
                flaky.AcceptClose(),
            ],
            seconds=_reset_seconds,
            floods=True,
        ),
        Staging(
            scenario=Scenario.FLAPPING,
            # Soon enough that the connection has not served a call, but late enough that every client has read
            # SETTINGS.
            script=lambda _: [*_HANGS_UP_AND_SAYS_SO * 3, _HANGS_UP],
            seconds=_in_initials(20, 10, 30),
            floods=True,
        ),
        Staging(
            scenario=Scenario.LIMITED,
            script=lambda terms: flaky.RollingRestart(after=_YOUNG * terms.initial),
            seconds=_in_initials(8, 6, 12),
        ),
        Staging(
            scenario=Scenario.DEAD_UPSTREAM,
            script=lambda _: flaky.RollingRestart(after=0.02, unavailable=True),
            seconds=_in_initials(15, 8, 20),
            floods=True,
        ),
        Staging(
            scenario=Scenario.DRAINED,
            script=lambda _: flaky.SettingsThenGoaway(after=0.02, closes=True),
            seconds=_in_initials(15, 8, 20),
            floods=True,
        ),
        Staging(
            scenario=Scenario.UNSTABLE,
            script=lambda _: flaky.SettingsThenClose(),
            seconds=_gaps(5, 4, 8),
            demands=(Setting.STABLE_AFTER,),
            floods=True,
        ),
        Staging(
            scenario=Scenario.HERD,
            script=lambda _: flaky.Working(),
            seconds=lambda terms, pace: _lives(terms) + _gaps(8, 5, 9)(terms, pace),
            clients=2,
            serves=_lives,
            then=lambda _terms, _pace: flaky.AcceptClose(),
            floods=True,
        ),
        Staging(
            scenario=Scenario.OUTAGE,
            script=lambda _: _WORKS_SLOWLY,
            seconds=_outage_seconds,
            serves=_lives,
            then=lambda terms, pace: [flaky.Step(flaky.Refuse(), lasting=_outage(terms, pace)), _WORKS_SLOWLY],
            counts_refused=True,
        ),
        Staging(
            scenario=Scenario.RESTART,
            script=lambda _: [
                flaky.Step(flaky.RollingRestart(after=1.5, latency=_RUNNING), times=1),
                flaky.Step(flaky.SettingsThenGoaway(after=1.2, closes=True), times=1),
                flaky.RollingRestart(after=1.5, latency=_RUNNING),
            ],
            seconds=lambda _terms, pace: 24.0 if pace.long else 8.0,  # losing a call in a restart is a matter of chance
            compressible=False,
        ),
    )
}
"""How each scenario is staged."""
