"""Hand-made observations of a channel that does everything right, and of channels with faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc

from grpc_backoff import AttemptFailed, AttemptStarted, Connected, Disconnected, Failure, Stage
from grpc_judge.matrix.scenarios import COMPRESSED
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.observation import Observation
from grpc_judge.servers.server import Server
from grpc_judge.servers.traffic import Call, Ended

OK, UNAVAILABLE, DEADLINE = (
    grpc.StatusCode.OK,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
SERVER = Server(name="made up", folder=Path(), command=("true",), happenings=tuple(Happening))
PROXY = replace(SERVER, name="proxy", proxy=True)
REFUSED = Failure(Stage.TCP, "connection refused")
GONE = Failure(Stage.ESTABLISHED, "the peer closed it")

STRUCK, AWAY, BACK, OVER = 101.0, 101.1, 102.6, 104.0


def call(began, ended, code=OK, *, wait_for_ready=False, long=False, unsent=False, deadline=3.0):
    outcome = None if ended is None else Ended(ended, code, "" if code is OK else "in words", unsent)
    return Call(wait_for_ready, long, began, began + deadline, outcome)


def started(at, attempt=1):
    return AttemptStarted(target="t", at=at, attempt=attempt, limit=1.0)


def failed(at, attempt=1):
    return AttemptFailed(target="t", at=at, attempt=attempt, failure=REFUSED, took=0.0, retry_in=0.2)


def connected(at, connections=1):
    return Connected(target="t", at=at, attempt=1, took=0.01, connections=connections)


def lost(at, lived=1.0):
    return Disconnected(target="t", at=at, attempt=1, failure=GONE, lived=lived, counted_as_failure=False)


FIRST = (started(100.0), connected(100.01))
OUTAGE = (
    *(lost(101.1), started(101.1), failed(101.11)),
    *(started(101.3, 2), failed(101.31, 2), started(101.62, 3), failed(101.63, 3), started(102.13, 4)),
    *(failed(102.14, 4), started(102.9, 5), connected(102.91, 2)),
)
BEFORE = (call(100.0, 100.02), call(100.8, 101.2, long=True), call(100.9, 101.3, wait_for_ready=True, long=True))
AFTER = (call(102.95, 102.96), call(103.0, 103.4, long=True))
WAITED = (call(101.11, 102.92, wait_for_ready=True), call(101.5, 101.5, UNAVAILABLE, unsent=True))


def observation(happening, calls=(*BEFORE, *WAITED, *AFTER), events=(*FIRST, *OUTAGE), server=SERVER, **changed):
    made = Observation(
        server=server,
        happening=happening,
        terms=COMPRESSED,
        calls=calls,
        events=events,
        began=100.0,
        struck=STRUCK,
        gone=AWAY,
        back=BACK,
        over=OVER,
        state=grpc.ChannelConnectivity.READY,
        versions={"made up": "1.2.3"},
    )
    return replace(made, **changed)


def right():
    """Return an observation that meets all demands, for each thing that can happen to a server."""
    steady = (*BEFORE, *AFTER)
    reloads = (*FIRST, lost(101.4), started(101.4), connected(101.41, 2))
    late = tuple(call(at, at + 1, DEADLINE, deadline=1.0) for at in (101.2, 102.0))
    refused = tuple(call(at, at + 0.01, UNAVAILABLE) for at in (101.2, 102.0))
    return {
        Happening.KILLED: observation(Happening.KILLED, (*BEFORE, call(100.99, 101.05, UNAVAILABLE), *WAITED, *AFTER)),
        Happening.DRAINED: observation(Happening.DRAINED),
        Happening.AGED: observation(Happening.AGED, steady, reloads),
        Happening.RELOADED: observation(Happening.RELOADED, steady, reloads, PROXY),
        Happening.FROZEN: observation(Happening.FROZEN, (*BEFORE, *late, *AFTER), FIRST),
        Happening.PINGED: observation(Happening.PINGED, (*BEFORE, *late, *AFTER)),
        Happening.UPSTREAM_DOWN: observation(Happening.UPSTREAM_DOWN, (*BEFORE, *refused, *AFTER), FIRST, PROXY),
    }
