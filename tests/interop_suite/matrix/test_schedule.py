"""Schedules of trials: no trial is left out or disturbed by another, and the whole run is short enough."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from grpc_judge.clients.peer import Peer, Setting
from grpc_judge.conformance import Scenario
from grpc_judge.matrix.scenarios import STAGINGS, Pace
from grpc_judge.matrix.schedule import waves
from grpc_judge.matrix.trial import Trial

TOLD = frozenset({Setting.INITIAL, Setting.MAX, Setting.MIN_CONNECT_TIMEOUT})
OURS = Peer(name="ours", folder=Path(), command=(), configurable=frozenset(Setting))
UNTOLD = replace(OURS, name="untold", configurable=frozenset())
LOUD = replace(UNTOLD, name="loud", loud=True)
TEN = [OURS, *(replace(OURS, name=f"told {number}", configurable=TOLD) for number in range(5))]
TEN += [replace(OURS, name="partly", configurable=TOLD - {Setting.MIN_CONNECT_TIMEOUT}), UNTOLD, LOUD]
TEN += [replace(LOUD, name="louder"), replace(LOUD, name="loudest")]
"""The ten clients of the matrix and one more, with the settings that each supports."""


def trials(*peers, full=False):
    every = [(peer, staging) for peer in peers for staging in STAGINGS.values() if peer.can_be_told(*staging.demands)]
    return [Trial(peer=peer, staging=staging, pace=staging.pace_for(peer, full=full)) for peer, staging in every]


@pytest.mark.parametrize("full", [False, True])
def test_nothing_is_left_out(full):
    """IO-4: every trial is performed once; in compressed time, no more clients run at once than requested."""
    every = trials(*TEN, full=full)
    found = list(waves(every, 8))
    assert sorted(map(id, every)) == sorted(id(trial) for wave in found for trial in wave.trials)
    for wave in found:
        if any(trial.pace.told or trial.staging.scenario is Scenario.RESTART for trial in wave.trials):
            assert sum(trial.staging.clients for trial in wave.trials) <= 8


@pytest.mark.parametrize("full", [False, True])
def test_floods_disturb_nobody(full):
    """IO-4: floods run only together with other floods, and the server that hangs up after SETTINGS runs alone."""
    for wave in waves(trials(*TEN, full=full), 8):
        scenarios = {trial.staging.scenario for trial in wave.trials}
        floods = [trial for trial in wave.trials if trial.peer.loud and trial.staging.floods]
        assert len(wave.trials) == 1 or Scenario.FLAPPING not in scenarios
        assert not floods or len(floods) == len(wave.trials)
        slow = [trial for trial in wave.trials if not trial.pace.told and trial.staging.compressible]
        assert len(slow) in {0, len(wave.trials)}


def test_those_that_sleep_do_so_side_by_side():
    """IO-4: all real-time trials that do not flood are one wave; those of the official 540 s come first."""
    sleepers = next(waves(trials(*TEN, full=True), 8))
    assert {trial.peer.name for trial in sleepers.trials} == {"partly", "untold", "loud", "louder", "loudest"}
    assert sleepers.trials[0].staging.scenario is Scenario.HANG_UP
    assert (sleepers.trials[0].pace, sleepers.seconds) == (Pace.FULL, 540)
    assert (sleepers.limit, sleepers.apart) == (None, pytest.approx(1 / os.cpu_count()))
    held = max(sleepers.trials[place].seconds for place in sleepers.holding)
    assert 100 < held < 300


def test_what_sleeps_alone_does_not_hold_up_the_rest():
    """IO-4: a trial of 540 s delays the others only at its start, while its attempts are close together."""
    hang_up = STAGINGS[Scenario.HANG_UP]
    (wave,) = waves([Trial(peer=UNTOLD, staging=hang_up, pace=Pace.FULL)])
    assert list(wave.holding) == [0]
    assert 60 < wave.limit < 300


def test_quiet_clients_share_waves():
    """IO-4: clients that take little CPU run side by side in every kind of trial and start soon after each other."""
    every = trials(*(replace(OURS, name=f"quiet {number}") for number in range(20)), full=True)
    found = list(waves(every, 100, loud=False))
    assert sorted(map(id, every)) == sorted(id(trial) for wave in found for trial in wave.trials)
    (series,) = (wave for wave in found if wave.trials[0].staging.scenario is Scenario.HANG_UP)
    assert sum(trial.clients for trial in series.trials) >= 80
    assert all(wave.apart < 0.1 for wave in found)
    assert len(found) < len(list(waves(every, 100))) / 2
    calling = [wave for wave in found if wave.trials[0].staging.scenario is Scenario.OUTAGE]
    assert calling
    assert all(sum(trial.clients for trial in wave.trials) <= 6 * (os.cpu_count() or 1) for wave in calling)


def least(wave):
    """Return the shortest time that a wave can take; a flood ends after some seconds."""
    if any(trial.peer.loud and trial.staging.floods for trial in wave.trials):
        return 8.0
    seconds = 5.0 if wave.trials[0].staging.scenario is Scenario.FLAPPING else wave.seconds
    return min(seconds, max(wave.trials[place].seconds for place in wave.holding)) + 3 + len(wave.trials) * wave.apart


def test_the_whole_run_is_short_enough():
    """IO-4: the full run with all clients of the matrix fits into fifteen minutes, with two to spare."""
    assert sum(least(wave) for wave in waves(trials(*TEN, full=True))) < 780
    assert sum(least(wave) for wave in waves(trials(*TEN))) < 390
