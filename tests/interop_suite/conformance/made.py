"""Evidence made by hand: what a server would have seen of a correct client, and of clients that vary from it.

The correct client's gaps are written out as numbers. No implementation computes them, so a clause and the client that
it judges cannot share a mistake.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from grpc_judge.clients.peer_program import CallOrder
from grpc_judge.conformance import Calls, Evidence, Scenario, Terms
from grpc_judge.timeline import Ending, Request, Timeline, Visit, Window

TERMS = Terms(initial=0.2, multiplier=1.6, cap=1.6, jitter=0.2, min_connect_timeout=1.0, tolerance=0.05)
SLOW = replace(TERMS, initial=1.0, cap=8.0)
"""Terms with an INITIAL_BACKOFF long enough to tell an immediate dial from a delayed one."""

NOMINAL = [0.2, 0.32, 0.512, 0.8192, 1.31072, 1.6, 1.6, 1.6]
GAPS = [0.2, 0.35, 0.46, 0.9, 1.2, 1.8, 1.4, 1.75]
"""The correct client's gaps, jittered by at most a fifth except for the first."""
JITTER = [
    *(0.0, 0.1, -0.1, 0.1, -0.08, 0.12, -0.12, 0.09, 0.19),
    *(-0.18, 0.02, -0.05, 0.15, -0.15, 0.06, -0.19, 0.17, -0.02),
]
STEADY = replace(TERMS, cap=0.4)
WANTED = 0.5
"""The time of the client's first call, in seconds."""
CALLS = Calls(made=100, ok=100)


def order(terms):
    """Return the order for a reference client with this backoff."""
    return CallOrder(
        target="127.0.0.1:1",
        seconds=1.0,
        workers=1,
        pause=0.02,
        ca=None,
        initial_ms=round(1000 * terms.initial),
        max_ms=round(1000 * terms.cap),
        min_connect_timeout_ms=round(1000 * terms.min_connect_timeout),
        stable_after_ms=None,
    )


def starts(gaps=GAPS, first=WANTED + 0.01):
    return list(accumulate(gaps, initial=first))


def failing(at, lasting=0.001, number=1, client="", behaviour="accept_close"):
    return Visit(
        number=number,
        client=client,
        behaviour=behaviour,
        accepted=at,
        ended=at + lasting,
        ending=Ending.CLOSED,
    )


def request(when, call="", outcome="ok"):
    return Request(at=when, stream=1, path="/x", outcome=outcome, call=call)


def served(at, until=None, requests=(), ending=Ending.CLOSED, client="", behaviour="working"):
    return Visit(
        number=1,
        client=client,
        behaviour=behaviour,
        accepted=at,
        settings_sent=at + 0.002,
        settings_acknowledged=at + 0.004,
        requests=tuple(request(each) if isinstance(each, float) else each for each in requests),
        ended=until,
        ending=ending if until else Ending.OPEN,
    )


def evidence(visits, *, seconds=10.0, terms=TERMS, calls=CALLS, refusing=(), refused=None, lags=()):
    numbered = tuple(replace(visit, number=number) for number, visit in enumerate(visits, 1))
    timeline = Timeline(
        visits=numbered, refusing=tuple(refusing), taken=WANTED + seconds + 0.1, refused=refused, lags=tuple(lags)
    )
    return Evidence(terms=terms, timeline=timeline, wanted=WANTED, seconds=seconds, calls=calls)


def series(gaps=GAPS, lasting=0.001, seconds=10.0, terms=TERMS):
    return evidence([failing(at, lasting) for at in starts(gaps)], seconds=seconds, terms=terms)


def timed(initial=1.0, multiplier=1.6, cap=1.0, width=0.2, *, compounds=False, first=None, jitter=JITTER):
    """Return the evidence of a client with this schedule, for the scenarios that measure gaps."""
    found = {}
    for scenario, terms, count in ((Scenario.HANG_UP, TERMS, 8), (Scenario.STEADY, STEADY, 22)):
        gaps = []
        for n in range(count):
            plain = terms.initial * initial * multiplier**n
            if compounds and gaps:
                plain = gaps[-1] * multiplier
            gaps.append(min(plain, cap * terms.cap) * (1 + jitter[n % len(jitter)] * width / 0.2))
        if first is not None:
            gaps[0] = first
        visits = [failing(at) for at in starts(gaps)]
        found[scenario] = evidence(visits, seconds=sum(gaps) + 0.3, terms=terms)
    return found


def failures(after_reset=(0.2, 0.46), after_garbage=(0.35, 0.9)):
    kinds = ("accept_reset", "tls_garbage", "accept_reset", "http1_answer", "accept_reset", "accept_reset")
    found = starts([after_reset[0], after_garbage[0], after_reset[1], after_garbage[1], 1.2])
    return evidence([failing(at, behaviour=kind) for at, kind in zip(found, kinds, strict=True)], seconds=4.0)


def silent(gaps=(1.0, 1.0, 1.0, 1.0, 1.4), lasting=(1.0, 1.02, 1.0, 1.0, 1.4), trickled=1):
    visits = [
        failing(at, last, behaviour="trickle" if place == trickled else "silent")
        for place, (at, last) in enumerate(zip(starts(gaps), lasting, strict=False))
    ]
    visits.append(failing(starts(gaps)[len(visits)], 0.5, behaviour="silent"))
    return evidence(visits, seconds=sum(gaps) + 0.2)


def reset(after=(0.2, 0.33, 0.5)):
    before = starts(GAPS[:3])
    lost = before[-1] + 1.5
    visits = [failing(at) for at in before[:-1]]
    visits += [served(before[-1], lost), *(failing(at) for at in starts(after, lost + 0.02))]
    return evidence(visits)


def flapping(gaps=(0.2,) * 20, goaway=(5, 6, 12)):
    kinds = dict.fromkeys(goaway, "enhance_your_calm")
    visits = [
        served(at, at + 0.01, behaviour=kinds.get(place, "settings_then_close"))
        for place, at in enumerate(starts(gaps))
    ]
    return evidence(visits, seconds=4.0)


def drained(gaps=(0.2,) * 14):
    """Return the evidence of a client whose server drains each connection."""
    return evidence([served(at, at + 0.02, behaviour="settings_then_goaway") for at in starts(gaps)], seconds=3.0)


def ending(gap, outcome, count):
    """Return connections that drain 0.05 s after their start, this long apart, and whose one call ends so."""
    return [
        served(at, at + 0.05, [request(at + 0.01, f"0-{n}", outcome)], behaviour="rolling_restart")
        for n, at in enumerate(starts((gap,) * count))
    ]


def limited(gap=0.06):
    """Return the evidence of a client whose server answers calls and soon drains each connection."""
    return evidence(ending(gap, "ok", 7), seconds=1.6)


def dead_upstream(gap=0.2):
    """Return the evidence of a client whose server answers UNAVAILABLE and soon drains each connection."""
    return evidence(ending(gap, "unavailable", 14), seconds=3.0)


def herd(*, first=GAPS, second=(0.2, 0.28, 0.58, 0.7, 1.5, 1.4, 1.9), clients=("a", "b")):
    visits = [served(WANTED, 1.5, client=client) for client in clients]
    for client, gaps in zip(clients, (first, second), strict=False):
        visits += [failing(at, client=client) for at in starts(gaps, 1.52)]
    return evidence(sorted(visits, key=lambda visit: visit.accepted), seconds=10.0)


ANSWERED = [request(0.6 + n / 100, f"{worker}-{n}") for n in range(5) for worker in range(4)]
AGAIN = [request(5.0 + n / 100, f"{worker}-{n}") for n in range(5, 9) for worker in range(4)]
ACCOUNT = Calls(made=60, ok=36, failed={"UNAVAILABLE": 24})
REFUSED = tuple(2.005 + at for at in (0.0, 0.2, 0.55, 1.01))


def outage(back=1.0, requests=(*ANSWERED, *AGAIN), refused=REFUSED, calls=ACCOUNT):
    before = [each for each in requests if each.at < 2.0]
    after = [each for each in requests if each.at >= 2.0]
    visits = [served(WANTED, 2.0, before), served(4.0 + back, None, after)]
    return evidence(visits, refusing=[Window(begin=2.0, end=4.0)], refused=refused, calls=calls)


REPLACED = [request(1.0 + n / 10, f"0-{n}") for n in range(5)]
NOT_TAKEN = [request(5.0, "0-5", "refused")]
MADE_AGAIN = [request(6.6, "0-5"), request(6.7, "0-6")]


def restart(first=WANTED + 0.1, pause=0.02, replaced=REPLACED, not_taken=NOT_TAKEN, again=MADE_AGAIN, calls=CALLS):
    one = served(first, first + 2.0, replaced)
    two = served(first + 2.0 + pause, first + 4.0)
    three = served(first + 4.0 + pause, first + 5.5, not_taken, behaviour="settings_then_goaway")
    four = served(first + 5.5 + pause, None, again)
    return evidence([one, two, three, four], terms=SLOW, seconds=8.0, calls=calls)


def right_client():
    """Return what the servers saw of a correct client, by scenario."""
    return {
        **timed(),
        Scenario.FAILURES: failures(),
        Scenario.SLOW_FAILURE: series(lasting=0.15),
        Scenario.SILENT: silent(),
        Scenario.TLS_SILENT: evidence(
            [failing(0.51, 1.0, behaviour="silent"), failing(1.51, 1.0, behaviour="silent")], seconds=2.6
        ),
        Scenario.SLOW_SETTINGS: evidence([served(0.51, None, (1.3, 1.4))], seconds=2.0),
        Scenario.HANDSHAKE: series(lasting=0.01),
        Scenario.TLS_FAILURE: series(lasting=0.01),
        Scenario.RESET: reset(),
        Scenario.FLAPPING: flapping(),
        Scenario.LIMITED: limited(),
        Scenario.DEAD_UPSTREAM: dead_upstream(),
        Scenario.DRAINED: drained(),
        Scenario.UNSTABLE: evidence([served(at, at + 0.01) for at in starts()]),
        Scenario.HERD: herd(),
        Scenario.OUTAGE: outage(),
        Scenario.RESTART: restart(),
    }
