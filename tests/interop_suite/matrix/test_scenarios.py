"""How scenarios are staged: how clients are configured, and whether each scenario lasts long enough."""

from __future__ import annotations

from itertools import accumulate, count, takewhile
from pathlib import Path

import pytest

from grpc_judge.clients.peer import Peer, Setting
from grpc_judge.conformance import CLAUSES, PROTOCOL, Scenario
from grpc_judge.flaky.script import steps_of
from grpc_judge.matrix.scenarios import COMPRESSED, SCALED, STAGINGS, Pace

STAGED = [pytest.param(staging, id=staging.scenario.label) for staging in STAGINGS.values()]
PACES = [pytest.param(pace, id=pace.value) for pace in Pace]


def peer(*settings):
    return Peer(name="made up", folder=Path(), command=(), configurable=frozenset(settings))


def test_every_clause_has_its_scenario():
    """IO-4: the staged scenarios are exactly those that the clauses need."""
    assert set(STAGINGS) == set(Scenario) == {clause.scenario for clause in CLAUSES}


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("staging", STAGED)
def test_scripts_can_be_played(staging, pace):
    """IO-3: the scripts of every scenario are valid for the flaky server."""
    terms = staging.terms_for(pace)
    assert steps_of(staging.script(terms))
    assert (staging.then is None) == (staging.serves is None)
    if staging.then is not None:
        assert steps_of(staging.then(terms, pace))


def test_compressed_time_is_for_those_who_can_be_told():
    """IO-4: a client that cannot be configured for a scenario is judged there by the protocol's own values."""
    told, partly, untold = peer(*Setting), peer(Setting.INITIAL, Setting.MAX), peer()
    silent, hang_up, restart = (STAGINGS[each] for each in (Scenario.SILENT, Scenario.HANG_UP, Scenario.RESTART))
    assert [silent.pace_for(each, full=False) for each in (told, partly, untold)] == [
        Pace.COMPRESSED,
        Pace.REAL,
        Pace.REAL,
    ]
    assert [hang_up.pace_for(each, full=False) for each in (told, partly, untold)] == [
        Pace.COMPRESSED,
        Pace.COMPRESSED,
        Pace.REAL,
    ]
    assert restart.pace_for(told, full=False) is Pace.REAL
    assert [hang_up.pace_for(each, full=True) for each in (told, untold)] == [Pace.SCALED, Pace.FULL]
    assert silent.pace_for(partly, full=True) is Pace.FULL
    assert hang_up.terms_for(Pace.SCALED) == SCALED
    assert (hang_up.terms_for(Pace.COMPRESSED), hang_up.terms_for(Pace.REAL)) == (COMPRESSED, PROTOCOL)
    assert hang_up.terms_for(Pace.FULL) == PROTOCOL


def test_what_a_client_is_told():
    """IO-4: a client gets only the settings that it supports, and special ones only where a scenario needs them."""
    hang_up, unstable = STAGINGS[Scenario.HANG_UP], STAGINGS[Scenario.UNSTABLE]
    backoff = {Setting.INITIAL: 200, Setting.MAX: 1600}
    assert hang_up.settings_for(peer(Setting.INITIAL, Setting.MAX), Pace.COMPRESSED) == backoff
    assert hang_up.settings_for(peer(*Setting), Pace.COMPRESSED) == backoff | {Setting.MIN_CONNECT_TIMEOUT: 1000}
    assert hang_up.settings_for(peer(*Setting), Pace.REAL) == {}
    assert unstable.settings_for(peer(*Setting), Pace.REAL) == {Setting.STABLE_AFTER: 10_000}


def test_series_are_long_enough_for_the_slowest_client():
    """IO-2: even the slowest client allowed shows two gaps at MAX_BACKOFF in compressed time, and one in 540 s."""
    hang_up = STAGINGS[Scenario.HANG_UP].seconds
    assert COMPRESSED.fewest_starts(hang_up(COMPRESSED, Pace.COMPRESSED)) == COMPRESSED.first_capped + 2
    assert hang_up(PROTOCOL, Pace.FULL) == 540
    assert hang_up(SCALED, Pace.SCALED) == pytest.approx(108)
    assert SCALED.fewest_starts(108) > SCALED.first_capped
    assert PROTOCOL.fewest_starts(540) > PROTOCOL.first_capped
    assert PROTOCOL.fewest_starts(hang_up(PROTOCOL, Pace.REAL)) == 6


@pytest.mark.parametrize("pace", PACES)
def test_silence_is_long_enough(pace):
    """CB-3: silence lasts several attempts and, except at real pace, until a gap exceeds MIN_CONNECT_TIMEOUT."""
    staging = STAGINGS[Scenario.SILENT]
    terms = staging.terms_for(pace)
    limits = accumulate(terms.outlasting(n) + terms.tolerance for n in count(1))
    attempts = len(list(takewhile(lambda elapsed: elapsed <= staging.seconds(terms, pace), limits)))
    assert attempts >= 2
    assert (terms.outlasting(attempts) > terms.min_connect_timeout) is (pace is not Pace.REAL)


@pytest.mark.parametrize("pace", PACES)
def test_a_herd_has_enough_gaps_to_disperse(pace):
    """CB-11: a herd shows at least five gaps after the loss, so two clients do not agree in all of them by chance."""
    staging = STAGINGS[Scenario.HERD]
    terms = staging.terms_for(pace)
    left = staging.seconds(terms, pace) - staging.serves(terms)
    assert terms.fewest_starts(left) - 1 >= 5


def test_compressed_bands_tell_the_gaps_apart():
    """IO-2: in compressed time, the bands of a gap below the cap and of the gap after the next do not overlap."""
    for n in range(1, COMPRESSED.first_capped - 1):
        assert COMPRESSED.band(n).high < COMPRESSED.band(n + 2).low


def test_scaled_time_is_a_fifth_of_the_protocols():
    """IO-4: scaled time is a fifth of the protocol's time; multiplier and jitter are the same."""
    times = [(SCALED.initial, PROTOCOL.initial), (SCALED.cap, PROTOCOL.cap)]
    times.append((SCALED.min_connect_timeout, PROTOCOL.min_connect_timeout))
    assert [5 * scaled for scaled, _ in times] == pytest.approx([whole for _, whole in times])
    assert (SCALED.multiplier, SCALED.jitter) == (PROTOCOL.multiplier, PROTOCOL.jitter)


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("staging", STAGED)
def test_what_settles_a_trial_is_more_than_any_clause_looks_at(staging, pace):
    """IO-4: a trial ends early only after more than five times as many connections as the terms allow."""
    terms = staging.terms_for(pace)
    if staging.settled is not None:
        assert staging.settled > 5 * terms.most_starts(staging.seconds(terms, pace))
        assert staging.scenario not in {Scenario.OUTAGE, Scenario.RESTART, Scenario.SLOW_SETTINGS}
