"""A fleet against one server: the simulator starts attempts as the channel's state machine does."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.dispersal.simulation import Outage, draw_gaps, limits, simulate
from grpc_backoff.decide.connections.connection_machine import (
    AbandonAttempt,
    ArmTimer,
    ConnectFailed,
    ConnectionMachine,
    ConnectionState,
    ConnectionWanted,
    StartAttempt,
    TimerFired,
)
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.decide.connections.happened import ChannelKey
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import NoJitter, Proportional
from grpc_backoff.policy.presets import CONNECT, GRPC, RETRY_PRESETS
from grpc_backoff.policy.strategy import Decorrelated, Exponential
from tests.policy.values import Always, backoffs, times, unhurried

REFUSED = Failure(Stage.TCP, "refused")
POLICIES = {
    "grpc": CONNECT,
    "grpc, first gap jittered": replace(CONNECT, jitter_first=True),
    **{name: replace(CONNECT, backoff=retry.backoff) for name, retry in RETRY_PRESETS.items() if name != "grpc"},
    "decorrelated": replace(CONNECT, backoff=BackoffPolicy(Decorrelated(0.5), 20.0, NoJitter())),
}


def starts_of_machine(policy, outage, rng):
    """Drive the real machine through an outage; return the start times of its attempts, up to the first success."""
    machine = ConnectionMachine("target", policy, ChannelKey())
    state, starts, now = ConnectionState(), [], 0.0
    given = ConnectionWanted()
    while True:
        state, effects = machine.step(state, given, now, rng)
        started = any(isinstance(effect, StartAttempt) for effect in effects)
        armed = [effect.at for effect in effects if isinstance(effect, ArmTimer)]
        if started:
            starts.append(now)
            if now >= outage.seconds:
                return starts
            if outage.attempt_lasts < state.limit - now:  # the attempt fails by itself, before its limit
                now += outage.attempt_lasts
                given = ConnectFailed(REFUSED, busy=True)
                continue
        assert armed or any(isinstance(effect, AbandonAttempt) for effect in effects)
        now = armed[-1]
        given = TimerFired(busy=True)


def generators(clients):
    return [random.Random(client) for client in range(clients)]


@pytest.mark.parametrize("attempt_lasts", [0.0, 0.3, 7.0, math.inf])
@pytest.mark.parametrize("name", POLICIES)
def test_same_as_the_machine(name, attempt_lasts):
    """BP: with the same random numbers, each simulated client starts its attempts when the real machine does."""
    outage = Outage(clients=40, seconds=90.0, attempt_lasts=attempt_lasts)
    policy = POLICIES[name]
    rngs = generators(outage.clients)

    recovery = simulate(policy, outage, draw=lambda who: np.array([rngs[client].random() for client in who]))

    real = [starts_of_machine(policy, outage, rng) for rng in generators(outage.clients)]
    assert recovery.back_after.tolist() == pytest.approx(
        sorted(starts[-1] - outage.seconds for starts in real), abs=1e-9
    )
    assert recovery.total == sum(map(len, real))


FRACTIONS = [0.0, 0.25, 0.5, 0.75, 1 - 2**-53]


@unhurried
@given(
    backoff=backoffs.filter(lambda backoff: backoff.nominal(1) > 0),
    attempt=st.integers(1, 100) | st.integers(1, 10**12),
    jitter_first=st.booleans(),
    shares=st.none() | st.lists(st.floats(0, 1), min_size=len(FRACTIONS), max_size=len(FRACTIONS)),
)
def test_gaps_of_many_are_the_gaps_of_each(backoff, attempt, jitter_first, shares):
    """BP: the gaps drawn for a whole fleet at once equal, to the last bit, the gaps that each client draws."""
    policy = replace(CONNECT, backoff=backoff, jitter_first=jitter_first)
    low, high = policy.bounds(max(1, attempt - 1))
    before = None if shares is None else [min(low + (high - low) * share, high) for share in shares]

    together = draw_gaps(policy, attempt, np.array(FRACTIONS), None if before is None else np.array(before))

    assert together.tolist() == [
        policy.gap(attempt, Always(fraction), None if before is None else before[client])
        for client, fraction in enumerate(FRACTIONS)
    ]


@unhurried
@given(gaps=st.lists(times, min_size=1), least=times)
def test_limits_of_many_are_the_limits_of_each(gaps, least):
    """CB-3: the time limits computed for a whole fleet at once equal those computed for each client."""
    policy = replace(CONNECT, min_connect_timeout=least)

    assert limits(policy, np.array(gaps)).tolist() == [policy.limit(gap) for gap in gaps]


@settings(deadline=None, max_examples=50)
@given(
    base=st.floats(0.01, 5),
    multiplier=st.floats(1, 4),
    jitter=st.floats(0, 0.99),
    cap=st.floats(0.5, 60),
    seconds=st.floats(0.01, 30),
)
def test_invariants(base, multiplier, jitter, cap, seconds):
    """BP: every client reconnects, no earlier than the server's return and no later than one gap after it."""
    policy = replace(CONNECT, backoff=BackoffPolicy(Exponential(base, multiplier), cap, Proportional(jitter)))

    recovery = simulate(policy, Outage(clients=100, seconds=seconds))

    assert len(recovery.back_after) == 100
    assert 0 <= recovery.back_after[0] <= recovery.until(1.0) <= cap * (1 + jitter)
    assert recovery.until(0.5) <= recovery.until(0.99) <= recovery.until(1.0)
    assert recovery.total == recovery.attempts.sum() >= 200


def test_blocks_do_not_matter(monkeypatch):
    """BP: splitting the clients across processors loses none of them and changes the result only by chance."""
    outage = Outage(clients=10_001, seconds=20.0)
    whole = simulate(CONNECT, outage)
    monkeypatch.setattr("benchmarks.dispersal.simulation._BLOCK", 1000)
    parts = simulate(CONNECT, outage)

    assert len(parts.back_after) == len(whole.back_after) == 10_001
    assert parts.until(0.5) == pytest.approx(whole.until(0.5), rel=0.05)
    assert parts.total == pytest.approx(whole.total, rel=0.01)


def test_same_seed_same_result():
    """CB-11: the same seed gives the same result, and another seed gives another."""
    outage = Outage(clients=200_000, seconds=5.0)
    one, same, other = (simulate(CONNECT, outage, seed=seed).back_after for seed in (1, 1, 2))

    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_without_jitter_all_come_at_once():
    """CB-11: without jitter, the whole fleet makes every attempt in one burst."""
    in_step = replace(CONNECT, backoff=replace(GRPC, jitter=NoJitter()))

    recovery = simulate(in_step, Outage(clients=1000, seconds=60.0))

    assert recovery.peak == 1000
    assert recovery.until(0.0) == recovery.until(1.0)
    assert set(recovery.attempts.tolist()) == {0, 1000}


def test_first_gap():
    """CB-2: the first gap has no jitter, so a fleet's second attempts are a burst; `jitter_first` spreads them."""
    restart = Outage(clients=1000, seconds=0.5)

    burst = simulate(CONNECT, restart)
    spread = simulate(replace(CONNECT, jitter_first=True), restart)

    assert burst.peak * burst.resolution == 1000
    assert spread.peak * spread.resolution < 100
    assert spread.until(1.0) - spread.until(0.0) > 0.3


def test_peak_counts_from_the_return():
    """BP: the peak counts only attempts after the server's return, even if earlier attempts share their bin."""
    recovery = simulate(CONNECT, Outage(clients=1000, seconds=0.95), resolution=10.0)

    assert recovery.attempts.tolist() == [2000]
    assert recovery.peak == 100


@pytest.mark.parametrize(
    ("seconds", "resolution"), [(1800.0, 1.0), (50.0, 1.0), (49.0, 0.1), (1.0, 0.01), (0.1, 0.001), (1e-6, 0.001)]
)
def test_resolution(seconds, resolution):
    """BP: shorter outages are counted in shorter bins."""
    assert Outage(clients=1, seconds=seconds).resolution == resolution


@pytest.mark.parametrize(
    ("outage", "how", "message"),
    [
        ({"clients": 0}, {}, "Outage.clients=0: expected a whole number from 1 to 100000000"),
        ({"clients": 1.5}, {}, "Outage.clients=1.5: expected a whole number from 1 to 100000000"),
        ({"clients": True}, {}, "Outage.clients=True: expected a whole number from 1 to 100000000"),
        ({"seconds": 0}, {}, "Outage.seconds=0: expected a finite number of seconds above 0"),
        ({"seconds": math.inf}, {}, "Outage.seconds=inf: expected a finite number of seconds above 0"),
        ({"attempt_lasts": -1}, {}, "Outage.attempt_lasts=-1: expected a number of seconds from 0 to inf"),
        ({"attempt_lasts": math.nan}, {}, "Outage.attempt_lasts=nan: expected a number of seconds from 0 to inf"),
        ({}, {"resolution": 0.0}, "resolution=0.0: expected a finite number of seconds above 0"),
        ({}, {"resolution": math.nan}, "resolution=nan: expected a finite number of seconds above 0"),
        ({}, {"resolution": 1e-9}, "resolution=1e-09: expected at least 2e-06 s"),
        ({}, {"seed": -1}, "seed=-1: expected a whole number of at least 0"),
    ],
)
def test_refused(outage, how, message):
    """BP-4: what is invalid, or would need too much memory, is rejected first, and the error says what is expected."""
    with pytest.raises(OptionError) as caught:
        simulate(CONNECT, Outage(**{"clients": 10, "seconds": 20.0, **outage}), **how)

    assert str(caught.value) == message


def test_no_end(monkeypatch):
    """BP-4: an outage is rejected if it is so long that each client would make too many attempts."""
    monkeypatch.setattr("benchmarks.dispersal.simulation._MOST_ATTEMPTS", 100)
    busy = replace(CONNECT, backoff=BackoffPolicy(Exponential(0.125, 1.0), 0.125, NoJitter()))

    assert simulate(busy, Outage(clients=2, seconds=8.0)).total == 2 * 65
    with pytest.raises(
        OptionError, match=r"Outage.seconds=90.0: expected an outage in which each client makes at most 100 attempts"
    ):
        simulate(busy, Outage(clients=2, seconds=90.0))


def test_few_clients_and_many_bins():
    """BP: each bin holds the attempts that started in it, even if there are many more bins than clients."""
    recovery = simulate(CONNECT, Outage(clients=1, seconds=1000.0), resolution=0.01)
    starts = np.flatnonzero(recovery.attempts) * 0.01

    assert recovery.attempts.max() == 1
    assert starts[:2].tolist() == [0.0, 1.0]
    assert starts[-1] == pytest.approx(1000 + recovery.until(1.0), abs=0.01)


def test_share():
    """BP: `until` takes a share of the clients from 0 to 1."""
    recovery = simulate(CONNECT, Outage(clients=10, seconds=5.0))

    assert recovery.until(0.0) == recovery.until(0.1) <= recovery.until(0.11)
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="expected a number from 0 to 1"):
            recovery.until(share)
