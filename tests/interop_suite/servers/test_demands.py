"""What must hold: with observation made by hand, once as it should be and once with each thing wrong."""

from __future__ import annotations

import grpc
import pytest

from interop.conformance import Outcome
from interop.servers.case_results import CaseResult
from interop.servers.demands import DEMANDS, judge, recovery
from interop.servers.happenings import Happening
from tests.interop_suite.servers import made
from tests.interop_suite.servers.made import call

RIGHT = made.right()


def failures(observation):
    return {verdict.clause: str(verdict) for verdict in judge(observation) if verdict.outcome is not Outcome.PASS}


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_what_is_right_holds(happening):
    """CH-2: a channel that does as it should passes, whatever happens."""
    assert failures(RIGHT[happening]) == {}


def test_every_demand_is_made_somewhere():
    """IO-4: a demand that never applies holds nobody to anything."""
    judged = {verdict.clause for observation in RIGHT.values() for verdict in judge(observation)}
    assert judged == {demand.name for demand in DEMANDS}


def changed(happening, *calls, **fields):
    before = RIGHT[happening]
    return made.replace(before, calls=(*before.calls, *calls), **fields)


@pytest.mark.parametrize("happening", [Happening.DRAINED, Happening.AGED, Happening.RELOADED])
def test_a_lost_call(happening):
    """CH-6: one call that was sent and fails is too many where everything is graceful."""
    said = failures(changed(happening, call(100.9, 101.1, made.UNAVAILABLE)))
    assert said["lost"].startswith("calls lost: 1 calls, allowed at most 0")


def test_an_unsent_call_is_lost_only_where_the_server_stays():
    """CH-6: a server that has ended is gone for who does not wait; one that ends connections is there for all."""
    unsent = call(101.5, 101.5, made.UNAVAILABLE, unsent=True)
    assert failures(changed(Happening.DRAINED, unsent)) == {}
    assert "calls that failed: 1" in failures(changed(Happening.AGED, unsent))["lost"]


def test_a_drain_in_which_nothing_ran_shows_nothing():
    """CH-6: that no call is lost is shown by calls that could have been."""
    calls = (*made.WAITED, *made.AFTER)
    assert "allowed at least 1" in failures(made.observation(Happening.DRAINED, calls))["lost"]


def test_a_patient_call_that_does_not_come_to_it():
    """CH-7: a wait-for-ready call waits for the server, and is answered."""
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


def test_a_server_that_is_not_graceful():
    """CH-6: what a server loses of every client's calls when it ends is no fault of the channel, and no pass either."""
    cancelled = call(101.0, 101.05, grpc.StatusCode.CANCELLED)
    rude = changed(Happening.DRAINED, cancelled, server=made.replace(made.SERVER, graceful=False))
    assert {verdict.clause: verdict.outcome for verdict in judge(rude)}["lost"] is Outcome.NOT_APPLICABLE
    assert failures(rude).keys() == {"lost"}  # as what does not apply
    assert CaseResult(server=made.SERVER, happening=Happening.DRAINED, verdicts=judge(rude)).passed
    assert {"lost", "codes"} <= failures(changed(Happening.DRAINED, cancelled)).keys()


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_a_call_that_hangs(happening):
    """CH-3: no call outlives its deadline, whatever happens; neither for good nor for a while."""
    assert "calls that hung: 1" in failures(changed(happening, call(100.5, None)))["on-time"]
    late = call(100.0, 103.9, made.DEADLINE, deadline=1.0)
    assert "beyond a deadline: 2.900 s, allowed at most 0.500" in failures(changed(happening, late))["on-time"]


def test_a_code_that_means_something_else():
    """CH-7: a lost connection is UNAVAILABLE, and only a frozen server has calls meet their deadlines."""
    for happening in Happening:
        cancelled = call(101.2, 101.3, grpc.StatusCode.CANCELLED)
        assert "codes" in failures(changed(happening, cancelled))
    assert "codes" in failures(changed(Happening.KILLED, call(101.2, 104.2, made.DEADLINE)))


def test_a_deadline_that_the_server_sees_first():
    """CH-7: a server may reset a call whose deadline passes, which the core calls CANCELLED; only then."""
    at_deadline = call(101.2, 102.21, grpc.StatusCode.CANCELLED, deadline=1.0)
    assert failures(changed(Happening.FROZEN, at_deadline)) == {}
    assert "codes" in failures(changed(Happening.KILLED, at_deadline))


def test_a_recovery_that_takes_too_long():
    """CB-4: it is counted in the longest gap of the backoff that can be in progress then."""
    late = (*made.BEFORE, *made.WAITED[1:], call(104.9, 105.0), call(105.1, 105.2))
    said = failures(made.observation(Happening.KILLED, late))
    assert said["recovery"].startswith("recovered in: 1.48 backoffs, allowed at most 1.31, missed by 0.17 backoffs")
    never = made.observation(Happening.KILLED, made.BEFORE)
    assert recovery(never) is None
    assert {"recovery", "settled"} <= failures(never).keys()


def test_a_channel_that_does_not_settle():
    """CH-2: once it works again it works."""
    said = failures(changed(Happening.FROZEN, call(103.2, 103.3, made.UNAVAILABLE)))
    assert "of those, calls that failed: 1" in said["settled"]


def test_too_many_attempts():
    """CB-5: attempts are counted in each time without a connection, and no two may be too close."""
    flood = [made.started(101.1 + n / 100) for n in range(100)]
    said = failures(made.observation(Happening.KILLED, events=(*made.FIRST, made.lost(101.05), *flood)))
    assert said["attempts"].startswith("attempts within 2.95 s without a connection: 100 attempts, allowed at most ")
    close = (*made.FIRST, made.lost(100.05), made.started(100.06), made.connected(100.07, 2))
    assert failures(made.observation(Happening.AGED, RIGHT[Happening.AGED].calls, close)) == {
        "attempts": "shortest gap: 0.060 s, allowed at least 0.110, missed by 0.050 s"
    }


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_too_many_connections(happening):
    """CB-7: a connection is replaced by one; those that age, by one for each."""
    more = [event for n in range(8) for event in (made.lost(110 + n), made.started(110 + n), made.connected(110.1 + n))]
    before = RIGHT[happening]
    assert "connections" in failures(made.replace(before, events=(*before.events, *more)))


def test_a_frozen_peer_that_is_not_noticed():
    """CH-8: without a loss there is nothing to show that it was noticed, and a late one is late."""
    calls = RIGHT[Happening.PINGED].calls
    assert "noticed" in failures(made.observation(Happening.PINGED, calls, made.FIRST))
    late = (*made.FIRST, made.lost(104.0), made.started(104.0), made.connected(104.1, 2))
    assert failures(made.observation(Happening.PINGED, calls, late))["noticed"].startswith("noticed after: 2.900 s")


def test_a_proxy_whose_connection_is_lost():
    """CB-7: a proxy that answers without its server is no failed connection."""
    calls = RIGHT[Happening.UPSTREAM_DOWN].calls
    said = failures(made.observation(Happening.UPSTREAM_DOWN, calls, server=made.PROXY))
    assert said["stays-ready"].startswith("connections lost: 1 connections, allowed at most 0")
    assert "connections" in said


@pytest.mark.parametrize("happening", Happening, ids=lambda happening: happening.value)
def test_a_channel_that_is_not_ready_at_the_end(happening):
    """CH-2: whatever happened, the channel is READY at the end."""
    state = grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert failures(changed(happening, state=state)).keys() == {"ready"}
