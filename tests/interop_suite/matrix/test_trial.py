"""Trials: a real client against real servers, several trials at a time."""

from __future__ import annotations

import asyncio
import itertools
import sys
from dataclasses import replace

import pytest

from grpc_judge.clients.peer import Peer, Setting, find_peers
from grpc_judge.conformance import CLAUSES, Outcome, Scenario, judge
from grpc_judge.matrix.scenarios import STAGINGS, Pace
from grpc_judge.matrix.trial import Start, Trial, Trust
from grpc_judge.runner.process import ProgramError
from grpc_judge.runner.program import ROOT
from grpc_judge.timeline import Ending

OURS = find_peers()[0]
FLOODING = next(peer for peer in find_peers() if peer.name == "grpclib")
BROKEN = Peer(
    name="broken", folder=ROOT, command=(sys.executable, "-c", "raise SystemExit('no')"), configurable=frozenset()
)


@pytest.fixture(scope="module")
def trust(tmp_path_factory):
    return Trust.make(tmp_path_factory.mktemp("trust"))


def trial(scenario, *, peer=OURS, seconds=None):
    staging = STAGINGS[scenario]
    if seconds is not None:
        staging = replace(staging, seconds=lambda _terms, _pace: seconds)
    return Trial(peer=peer, staging=staging, pace=staging.pace_for(OURS, full=False))


async def perform(*trials, trust):
    start = Start(len(trials))
    return await asyncio.gather(*(each.perform(trust, start) for each in trials), return_exceptions=True)


async def test_an_outage_comes_once_the_client_is_served(trust):
    """CB-4: an outage begins once the client is connected and lasts as long as planned. Takes six seconds."""
    ((evidence, versions),) = await perform(trial(Scenario.OUTAGE), trust=trust)
    first, second = evidence.visits
    (gone,) = evidence.timeline.refusing
    assert first.ending is Ending.RESET
    assert first.ended - first.accepted >= 0.75
    assert gone.end - gone.begin == pytest.approx(1.6, abs=0.6)
    assert first.ended <= gone.begin + 0.3 < gone.end <= second.accepted
    assert evidence.calls.made == evidence.calls.ok + sum(evidence.calls.failed.values())
    assert "grpc_backoff" in versions
    verdict = next(each for each in judge({Scenario.OUTAGE: evidence}, CLAUSES) if each.clause == "recovery")
    assert verdict.outcome is Outcome.PASS, str(verdict)


async def test_a_herd_is_two_clients_who_lose_their_servers_together(trust):
    """CB-11: a herd is two clients with a server each, and both servers drop their connections at the same moment.

    The servers share a clock. Takes four seconds.
    """
    ((evidence, _),) = await perform(trial(Scenario.HERD, seconds=2.5), trust=trust)
    served = [visit for visit in evidence.visits if visit.behaviour == "working"]
    assert sorted(visit.client for visit in served) == ["client 1", "client 2"]
    assert abs(served[0].ended - served[1].ended) < 0.5  # on a busy machine
    after = [visit for visit in evidence.visits if visit.behaviour == "accept_close"]
    assert {visit.client for visit in after} == {"client 1", "client 2"}
    assert [visit.accepted for visit in evidence.visits] == sorted(visit.accepted for visit in evidence.visits)


async def test_trials_begin_together_and_one_that_breaks_down_keeps_nobody(trust):
    """IO-4: trials begin together, and a program that fails affects only its own trial. Takes three seconds."""
    good, bad = trial(Scenario.SLOW_SETTINGS), trial(Scenario.SLOW_SETTINGS, peer=BROKEN)
    (evidence, _), fault = await perform(good, bad, trust=trust)
    assert evidence.calls.ok > 0
    assert evidence.terms.min_connect_timeout == 1.0
    assert isinstance(fault, ProgramError)
    assert str(fault) == "broken ended with status 1: no"


async def test_those_who_load_together_begin_one_after_another():
    """IO-4: trials wait until all have loaded and then begin one after another. Takes half a second."""
    loop, start, gone = asyncio.get_running_loop(), Start(3, apart=0.1), []

    async def runner(late):
        await asyncio.sleep(late)
        await start.wait()
        gone.append(loop.time() - began)

    began = loop.time()
    await asyncio.gather(runner(0.0), runner(0.0), runner(0.2))
    assert gone[0] >= 0.29
    assert all(later - earlier >= 0.09 for earlier, later in itertools.pairwise(gone))


async def test_tls_where_the_scenario_has_it(trust):
    """CB-6: in scenarios with TLS, the client trusts the run's own CA and handshakes succeed. Takes three seconds."""
    ((evidence, _),) = await perform(trial(Scenario.HANDSHAKE, seconds=1.0), trust=trust)
    assert len(evidence.visits) >= 2
    assert all(visit.ending is Ending.CLOSED and visit.first_bytes is not None for visit in evidence.visits)


async def test_settings_reach_the_client(trust):
    """CB-8: a client that supports `stable-after` is given that setting, and its backoff grows. Takes four seconds."""
    assert OURS.can_be_told(Setting.STABLE_AFTER)
    ((evidence, _),) = await perform(trial(Scenario.UNSTABLE, seconds=1.5), trust=trust)
    starts = [visit.accepted for visit in evidence.visits]
    # One gap may be short because of the core, which redials for a call that enters a dying connection.
    assert max(later - earlier for earlier, later in itertools.pairwise(starts)) > 0.3
    assert Pace.COMPRESSED is trial(Scenario.UNSTABLE).pace


@pytest.mark.parametrize("scenario", [Scenario.HANG_UP, Scenario.HERD], ids=lambda scenario: scenario.label)
async def test_a_flood_ends_once_all_is_settled(scenario, trust):
    """IO-4: the trial of a flood ends after enough connections, minutes early, without changing the verdicts.

    Takes ten seconds.
    """
    flood = trial(scenario, peer=FLOODING)
    flood = replace(flood, pace=Pace.FULL)
    assert flood.seconds > 100
    async with asyncio.timeout(60):
        ((evidence, versions),) = await perform(flood, trust=trust)
    assert versions["grpclib"]
    assert evidence.calls.made >= evidence.calls.failed["StreamTerminatedError"] > 100
    assert evidence.calls.unfinished == 0, "the program was asked to end its calls"
    assert evidence.settled == evidence.over < evidence.wanted + 60
    assert evidence.seconds == flood.seconds
    assert len(evidence.visits) >= flood.staging.settled * flood.staging.clients
    failed = {verdict.clause for verdict in judge({scenario: evidence}, CLAUSES) if verdict.outcome is Outcome.FAIL}
    failed.discard("clients-disperse")  # on a busy machine, both may pause at the same time
    assert failed == {Scenario.HANG_UP: {"first-gap", "growth"}, Scenario.HERD: set()}[scenario]
