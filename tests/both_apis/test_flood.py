"""CB-7: sixteen callers make calls in a tight loop; the peer sends SETTINGS and hangs up. Runs in real time."""

from __future__ import annotations

import json
import time

import grpc
import pytest

from grpc_backoff import AttemptStarted
from grpc_backoff.testing.front import settings_then_close
from tests.both_apis.log import Log
from tests.sync.service import front

CODE = grpc.StatusCode
RETRY = "retry: 4, delay: 1ms"
POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.001s",
    "maxBackoff": "0.001s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
SERVICE_CONFIG = [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": POLICY}]}))]


def calls(end, codes):
    """Make calls in a loop until the time `end`; append their status codes to `codes`, from several threads at once."""
    while time.monotonic() < end:
        outcome = yield "a", {"timeout": 3}
        codes.append(outcome.code)


def flooded(api, lives, initial, seconds, options=(), **how):
    """Flood a peer, which closes each connection after `lives` seconds, with calls for `seconds` seconds.

    Return the number of connections that the peer accepted, and the number of attempts, in that time.
    """
    log, codes = Log(), []
    options = [("grpc.initial_reconnect_backoff_ms", round(initial * 1000)), *options]
    with front(settings_then_close(lives)) as peer:
        with api.channel(peer.target, options, listeners=[log.hear], **how) as channel:
            end = time.monotonic() + seconds
            channel.start([calls(end, codes) for _ in range(16)])()
        dialled, starts = ([each.at for each in of] for of in (peer.visits, log.of(AttemptStarted)))
    assert codes
    assert set(codes) <= {CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED}
    return [sum(at - times[0] <= seconds for at in times) for times in (dialled, starts)]


def check(flood, starts, connections):
    """Check the number of attempts, and the number of connections, some of which may be the core's redials.

    Each redial delays the next attempt by one INITIAL_BACKOFF (CB-16), so several in a row may leave time for only one.
    """
    dialled, started = flood
    assert started <= starts
    assert 2 <= dialled <= connections


@pytest.mark.parametrize("lives", [0.0, 0.001])
def test_a_second(ours, lives):
    """CB-7: there is at most one start per INITIAL_BACKOFF, plus one; any other connections are redials by the core."""
    check(flooded(ours, lives, 0.25, 1.0), 5, 10)


@pytest.mark.parametrize("source", ["argument", "service config"])
def test_retries_do_not_make_the_core_dial(ours, source):
    """CB-16, RT-10: retries, whether from `retry` or from a service config, do not multiply the core's redials."""
    how = {"retry": RETRY} if source == "argument" else {"options": SERVICE_CONFIG}
    check(flooded(ours, 0.02, 0.25, 1.25, **how), 6, 9)
