"""Evidence made by hand: what a server would have seen of a client that does all as it should, and changes to that.

The right client's gaps are given as numbers, not taken from an implementation, so that a clause and the client that it
judges cannot share a mistake.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from interop.conformance import Announced, Calls, Evidence, Scenario, Terms
from interop.timeline import Ending, Request, Timeline, Visit, Window

TERMS = Terms(initial=0.2, multiplier=1.6, cap=1.6, jitter=0.2, min_connect_timeout=1.0, tolerance=0.05)
SLOW = replace(TERMS, initial=1.0, cap=8.0)
"""Where something has to be done at once, INITIAL_BACKOFF is long enough to tell."""

NOMINAL = [0.2, 0.32, 0.512, 0.8192, 1.31072, 1.6, 1.6, 1.6]
GAPS = [0.2, 0.35, 0.46, 0.9, 1.2, 1.8, 1.4, 1.75]
"""Jittered by at most a fifth; the first is not."""
WANTED = 0.5
"""When the client makes its first call."""
CALLS = Calls(made=100, ok=100)


def starts(gaps=GAPS, first=WANTED + 0.01):
    return list(accumulate(gaps, initial=first))


def failing(at, lasting=0.001, number=1, client=""):
    return Visit(
        number=number,
        client=client,
        behaviour="accept_close",
        accepted=at,
        ended=at + lasting,
        ending=Ending.CLOSED,
    )


def served(at, until=None, requests=(), ending=Ending.CLOSED, client=""):
    return Visit(
        number=1,
        client=client,
        behaviour="working",
        accepted=at,
        settings_sent=at + 0.002,
        requests=tuple(Request(at=when, stream=1, path="/x", outcome="ok") for when in requests),
        ended=until,
        ending=ending if until else Ending.OPEN,
    )


def evidence(visits, *, seconds=10.0, terms=TERMS, calls=CALLS, refusing=()):
    numbered = tuple(replace(visit, number=number) for number, visit in enumerate(visits, 1))
    timeline = Timeline(visits=numbered, refusing=tuple(refusing), taken=WANTED + seconds + 0.1)
    return Evidence(terms=terms, timeline=timeline, wanted=WANTED, seconds=seconds, calls=calls)


def series(gaps=GAPS, lasting=0.001, seconds=10.0):
    return evidence([failing(at, lasting) for at in starts(gaps)], seconds=seconds)


def silent(gaps=(1.0, 1.0, 1.0, 1.0, 1.4), lasting=(1.0, 1.02, 1.0, 1.0, 1.4)):
    visits = [failing(at, last) for at, last in zip(starts(gaps), lasting, strict=False)]
    visits.append(failing(starts(gaps)[len(visits)], 0.5))
    return evidence(visits, seconds=sum(gaps) + 0.2)


def reset(after=(0.2, 0.33, 0.5)):
    before = starts(GAPS[:3])
    lost = before[-1] + 1.5
    visits = [failing(at) for at in before[:-1]]
    visits += [served(before[-1], lost), *(failing(at) for at in starts(after, lost + 0.02))]
    return evidence(visits)


def flapping(gaps=(0.2,) * 20):
    return evidence([served(at, at + 0.01) for at in starts(gaps)], seconds=4.0)


def herd(*, first=GAPS, second=(0.2, 0.28, 0.58, 0.7, 1.5, 1.4, 1.9), clients=("a", "b")):
    visits = [served(WANTED, 1.5, client=client) for client in clients]
    for client, gaps in zip(clients, (first, second), strict=False):
        visits += [failing(at, client=client) for at in starts(gaps, 1.52)]
    return evidence(sorted(visits, key=lambda visit: visit.accepted), seconds=10.0)


def outage(back=1.0, requests=(5.0, 5.1)):
    visits = [served(WANTED, 2.0, (0.6, 0.7)), served(4.0 + back, None, requests)]
    return evidence(visits, refusing=[Window(begin=2.0, end=4.0)])


def restart(first=WANTED + 0.1, pause=0.02, calls=CALLS):
    one = served(first, first + 2.0, (1.0, 2.0))
    two = served(first + 2.0 + pause, first + 4.0, (3.0, 4.0))
    three = served(first + 4.0 + pause, None, (5.0,))
    return evidence([one, two, three], terms=SLOW, seconds=6.0, calls=calls)


def held(*, beside=(), redials=(), after=(), announced=GAPS):
    """Return a client that announces its attempts; connections that it did not announce come beside and after them."""
    closed = WANTED + 12.0
    visits = [failing(at) for at in sorted([*starts(), *beside, *redials, *(closed + late for late in after)])]
    said = Announced(
        attempts=tuple(at - 0.005 for at in starts(announced)),
        redials=tuple(at + 0.01 for at in redials),
        closed=closed,
    )
    return replace(evidence(visits, seconds=12.0), announced=said)


def right_client():
    """Return what the servers saw of a client that does all as it should."""
    return {
        Scenario.HANG_UP: series(),
        Scenario.SLOW_FAILURE: series(lasting=0.15),
        Scenario.SILENT: silent(),
        Scenario.SLOW_SETTINGS: evidence([served(0.51, None, (1.3, 1.4))], seconds=2.0),
        Scenario.HANDSHAKE: series(lasting=0.01),
        Scenario.RESET: reset(),
        Scenario.FLAPPING: flapping(),
        Scenario.UNSTABLE: evidence([served(at, at + 0.01) for at in starts()]),
        Scenario.HERD: herd(),
        Scenario.OUTAGE: outage(),
        Scenario.RESTART: restart(),
        Scenario.HELD_OUTAGE: held(),
        Scenario.HELD_RESTART: held(redials=(1.0, 2.5)),
        Scenario.HELD_MOVE: held(),
    }
