"""The demands on a channel, checked on observations made by hand: right ones, and one for each violation."""

from __future__ import annotations

import grpc
import pytest

from grpc_judge.conformance import Outcome
from grpc_judge.servers.demands import DEMANDS, judge, recovery
from grpc_judge.servers.happenings import Happening
from tests.interop_suite.servers import made
from tests.interop_suite.servers.made import call

RIGHT = made.right()
RESET = "Stream removed (RST_STREAM (Received RST_STREAM with error code 2))"


def failures(observation):
    return {verdict.clause: str(verdict) for verdict in judge(observation) if verdict.outcome is not Outcome.PASS}


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_what_is_right_holds(happening):
    """CH-2: a channel that does everything right meets every demand, whatever happens to the server."""
    assert failures(RIGHT[happening]) == {}


def test_every_demand_is_made_somewhere():
    """IO-4: every demand applies to at least one of the things that can happen to a server."""
    judged = {verdict.clause for observation in RIGHT.values() for verdict in judge(observation)}
    assert judged == {demand.name for demand in DEMANDS}


def changed(happening, *calls, **fields):
    before = RIGHT[happening]
    return made.replace(before, calls=(*before.calls, *calls), **fields)


@pytest.mark.parametrize("happening", [Happening.DRAINED, Happening.AGED, Happening.RELOADED])
def test_a_lost_call(happening):
    """CH-6: where connections end gracefully, not a single call that was sent may fail."""
    said = failures(changed(happening, call(100.9, 101.1, made.UNAVAILABLE)))
    assert said["lost"].startswith("calls lost: 1 call, allowed at most 0")


def test_an_unsent_call_is_lost_only_where_the_server_stays():
    """CH-6: an unsent fail-fast call may fail once the server has ended, but not if only its connections end."""
    unsent = call(101.5, 101.5, made.UNAVAILABLE, unsent=True)
    assert failures(changed(Happening.DRAINED, unsent)) == {}
    assert "calls that failed: 1" in failures(changed(Happening.AGED, unsent))["lost"]


def test_a_drain_in_which_nothing_ran_shows_nothing():
    """CH-6: a drain during which no calls ran proves nothing, so the demand on lost calls fails."""
    calls = (*made.WAITED, *made.AFTER)
    assert "allowed at least 1" in failures(made.observation(Happening.DRAINED, calls))["lost"]


def test_a_patient_call_that_does_not_come_to_it():
    """CH-7: wait-for-ready calls must wait for the server and succeed, and at least one must have waited."""
    said = failures(changed(Happening.KILLED, call(101.5, 102.0, made.UNAVAILABLE, wait_for_ready=True)))
    assert "of those, calls that failed: 1" in said["waiting"]
    core = failures(
        changed(Happening.DRAINED, call(101.05, 101.12, made.UNAVAILABLE, wait_for_ready=True, unsent=True))
    )
    assert "wait-for-ready calls that failed for lack of a connection: 1" in core["waiting"]
    none = tuple(each for each in RIGHT[Happening.KILLED].calls if each not in made.WAITED)
    assert (
        "wait-for-ready calls made without a connection: 0"
        in failures(made.observation(Happening.KILLED, none))["waiting"]
    )


def test_a_patient_call_before_the_loss_was_heard_of():
    """CH-7: a wait-for-ready call that lasts until the server is back has waited, even if the loss came later."""
    calls = [each for each in RIGHT[Happening.KILLED].calls if each not in made.WAITED]
    early = call(101.05, 102.92, wait_for_ready=True)
    assert "waiting" not in failures(made.observation(Happening.KILLED, (*calls, early)))
    assert "waiting" in failures(
        made.observation(Happening.KILLED, (*calls, call(101.05, 101.06, wait_for_ready=True)))
    )


def test_a_server_that_is_not_graceful():
    """CH-6: calls lost by a server that does not end gracefully are neither the channel's fault nor a pass."""
    cancelled = call(101.0, 101.05, grpc.StatusCode.CANCELLED)
    rude = changed(Happening.DRAINED, cancelled, server=made.replace(made.SERVER, graceful=False))
    assert {verdict.clause: verdict.outcome for verdict in judge(rude)}["lost"] is Outcome.NOT_APPLICABLE
    assert failures(rude).keys() == {"lost"}  # because it does not apply
    assert {"lost", "codes"} <= failures(changed(Happening.DRAINED, cancelled)).keys()


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_a_call_that_hangs(happening):
    """CH-3: no call may outlive its deadline, whatever happens to the server."""
    assert "calls that hung: 1" in failures(changed(happening, call(100.5, None)))["on-time"]
    late = call(100.0, 103.9, made.DEADLINE, deadline=1.0)
    assert "beyond a deadline: 2.900 s, allowed at most 0.500" in failures(changed(happening, late))["on-time"]


def test_a_code_that_means_something_else():
    """CH-7: calls on a lost connection must fail with UNAVAILABLE; only a frozen server excuses DEADLINE_EXCEEDED."""
    for happening in Happening:
        cancelled = call(101.2, 101.3, grpc.StatusCode.CANCELLED)
        assert "another code (CANCELLED, 'in words'): 1 call," in failures(changed(happening, cancelled))["codes"]
    assert "codes" in failures(changed(Happening.KILLED, call(101.2, 104.2, made.DEADLINE)))


def test_a_deadline_that_the_server_sees_first():
    """CH-7: CANCELLED is allowed only if a server may have reset the call at its deadline, as after a freeze."""
    at_deadline = call(101.2, 102.21, grpc.StatusCode.CANCELLED, deadline=1.0)
    assert failures(changed(Happening.FROZEN, at_deadline)) == {}
    assert "codes" in failures(changed(Happening.KILLED, at_deadline))


def test_a_proxy_that_resets_a_call():
    """CH-7: INTERNAL is allowed only for a call that a proxy has reset because its server died."""
    ended = made.replace(call(101.2, 101.3, grpc.StatusCode.INTERNAL).ended, details=RESET)
    reset = made.replace(call(101.2, 101.3), ended=ended)
    assert "codes" not in failures(changed(Happening.UPSTREAM_DOWN, reset))
    assert "codes" in failures(changed(Happening.KILLED, reset))
    other = call(101.2, 101.3, grpc.StatusCode.INTERNAL)
    assert "codes" in failures(changed(Happening.UPSTREAM_DOWN, other))


def test_a_recovery_that_takes_too_long():
    """CB-4: recovery may take no longer than the longest backoff possible after an outage of that length."""
    late = (*made.BEFORE, *made.WAITED[1:], call(104.9, 105.0), call(105.1, 105.2))
    said = failures(made.observation(Happening.KILLED, late))
    assert said["recovery"].startswith("recovered in: 1.48 backoffs, allowed at most 1.31, missed by 0.17 backoffs")
    never = made.observation(Happening.KILLED, made.BEFORE)
    assert recovery(never) is None
    assert {"recovery", "settled"} <= failures(never).keys()


def test_a_channel_that_does_not_settle():
    """CH-2: once the channel has recovered, no more calls may fail."""
    said = failures(changed(Happening.FROZEN, call(103.2, 103.3, made.UNAVAILABLE)))
    assert "of those, calls that failed: 1" in said["settled"]


def test_too_many_attempts():
    """CB-5: attempts are counted for each period without a connection, and no two may be too close together."""
    flood = [made.started(101.1 + n / 100) for n in range(100)]
    said = failures(made.observation(Happening.KILLED, events=(*made.FIRST, made.lost(101.05), *flood)))
    assert said["attempts"].startswith("attempts within 2.95 s without a connection: 100 attempts, allowed at most ")
    close = (*made.FIRST, made.lost(100.05), made.started(100.06), made.connected(100.07, 2))
    assert failures(made.observation(Happening.AGED, RIGHT[Happening.AGED].calls, close)) == {
        "attempts": "shortest gap: 0.060 s, allowed at least 0.110, missed by 0.050 s"
    }


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_too_many_connections(happening):
    """CB-7: each lost connection may be replaced by only one new connection."""
    more = [event for n in range(8) for event in (made.lost(110 + n), made.started(110 + n), made.connected(110.1 + n))]
    before = RIGHT[happening]
    assert "connections" in failures(made.replace(before, events=(*before.events, *more)))


def test_a_frozen_peer_that_is_not_noticed():
    """CH-8: with keepalive, the channel must drop a frozen connection soon enough."""
    calls = RIGHT[Happening.PINGED].calls
    assert "noticed" in failures(made.observation(Happening.PINGED, calls, made.FIRST))
    late = (*made.FIRST, made.lost(104.0), made.started(104.0), made.connected(104.1, 2))
    assert failures(made.observation(Happening.PINGED, calls, late))["noticed"].startswith("noticed after: 2.900 s")


def test_a_proxy_whose_connection_is_lost():
    """CB-7: the channel must keep its connection to a proxy that still answers while the server behind it is down."""
    calls = RIGHT[Happening.UPSTREAM_DOWN].calls
    said = failures(made.observation(Happening.UPSTREAM_DOWN, calls, server=made.PROXY))
    assert said["stays-ready"].startswith("connections lost: 1 connection, allowed at most 0")
    assert "connections" in said


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_a_channel_that_is_not_ready_at_the_end(happening):
    """CH-2: the channel must be READY at the end, whatever happened to the server."""
    state = grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert failures(changed(happening, state=state)).keys() == {"ready"}
