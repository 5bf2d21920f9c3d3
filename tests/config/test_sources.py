"""Combining several sources into one policy, while tracking which source each value came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.config.sources import PRESET_SOURCES, Effective, SourceValue, compose, source_of
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.jitter import Full, NoJitter, Proportional
from grpc_backoff.policy.presets import RETRY_PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps
from tests.policy.values import unhurried

GRPC = PRESET_SOURCES["grpc"]
HAS_ITS_OWN = "'none', because decorrelated backoff has its own jitter"


def written(**values):
    """Return a source with these values, as if a user had written each under its own key."""
    return {part: SourceValue(value, f"key.{part}", value, "user") for part, value in values.items()}


def backoff(*sources):
    return compose(RetryPolicy, [*sources, GRPC]).policy.backoff


@pytest.mark.parametrize(
    ("sources", "initial", "cap"),
    [
        ([{"max_delay": 0.5}], 0.5, 0.5),
        ([{"delay": 500.0}], 500.0, 500.0),
        ([{"max_delay": 2.0}, {"delay": 3.0}], 2.0, 2.0),
        ([{"delay": 3.0}, {"max_delay": 2.0}], 3.0, 3.0),
        ([{"delay": 3.0}, {"delay": 1.0, "max_delay": 2.0}], 3.0, 3.0),
        ([{"max_delay": 1.0}, {"delay": 2.0, "max_delay": 4.0}], 1.0, 1.0),
        ([{"delay": 2.0}, {"max_delay": 3.0}], 2.0, 3.0),
        ([{"delay": 2.0}, {"max_delay": 2.0}], 2.0, 2.0),
    ],
)
def test_delay_above_maximum(sources, initial, cap):
    """BP-3: if the first wait exceeds the maximum, both take the value from the source with the higher precedence."""
    composed = backoff(*(source_of("test", source) for source in sources))

    assert (composed.strategy.base, composed.cap) == (initial, cap)


@pytest.mark.parametrize("strategy", ["fixed", "linear", "exponential", "decorrelated"])
def test_a_maximum_of_the_user(strategy):
    """BP-3: a maximum that the user sets is never raised, whatever sets the delay; a preset's own is."""
    above = written(backoff=strategy, delay=45.0)

    lowered = backoff(above, written(max_delay=2.0))
    assert (lowered.strategy.base, lowered.cap) == (2.0, 2.0)
    assert backoff(above, source_of("preset", {"max_delay": 2.0})).cap == 45.0


def test_steps_above_the_maximum():
    """BP-3: steps above a preset's maximum raise it, as a delay does; a maximum that the user sets limits them."""
    above = written(backoff="steps", steps=(45.0, 150.0, 90.0))

    assert backoff(above).cap == 150.0
    assert backoff(above, written(max_delay=60.0)).cap == 60.0
    assert backoff(written(max_delay=60.0), above).cap == 60.0


@pytest.mark.parametrize(
    ("sources", "most", "origin"),
    [
        ([], 60.0, "preset steps"),
        ([{"max_delay": 10.0}], 10.0, "user: key.max_delay"),
        ([{"max_delay": 300.0}], 300.0, "user: key.max_delay"),
        ([{"max_delay": 10.0}, {"max_server_delay": 40.0}], 40.0, "user: key.max_server_delay"),
        ([{"steps": (100.0,)}], 100.0, "user: key.steps"),
    ],
)
def test_one_maximum_of_steps(sources, most, origin):
    """RT-3: with `steps`, one cap limits the schedule and what a server asks for, unless the user sets a second one."""
    composed = compose(RetryPolicy, [*(written(**source) for source in sources), PRESET_SOURCES["steps"]])

    assert composed.policy.max_server_delay == most
    assert Effective("max_server_delay", most, origin) in composed.effective


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, BackoffPolicy(Exponential(1.0, 1.6), 120.0, Proportional(0.2))),
        ({"backoff": "fixed"}, BackoffPolicy(Fixed(1.0), 120.0, Proportional(0.2))),
        ({"backoff": "linear", "delay": 2.0}, BackoffPolicy(Linear(2.0), 120.0, Proportional(0.2))),
        ({"max_exponent": 4}, BackoffPolicy(Exponential(1.0, 1.6, 4), 120.0, Proportional(0.2))),
        (
            {"backoff": "steps", "steps": (1.0, 5.0), "multiplier": 3.0},
            BackoffPolicy(Steps((1.0, 5.0), 3.0), 120.0, Proportional(0.2)),
        ),
        ({"backoff": "decorrelated"}, BackoffPolicy(Decorrelated(1.0), 120.0, NoJitter())),
        ({"backoff": "decorrelated", "jitter": NoJitter()}, BackoffPolicy(Decorrelated(1.0), 120.0, NoJitter())),
    ],
)
def test_strategies(values, expected):
    """BP: each strategy uses its own parts and ignores the preset's other parts."""
    assert backoff(written(**values)) == expected


@pytest.mark.parametrize(
    ("sources", "key", "allowed"),
    [
        ([{"backoff": "fixed", "multiplier": 2.0}], "multiplier", "no multiplier with fixed backoff"),
        ([{"multiplier": 2.0}, {"backoff": "linear"}], "multiplier", "no multiplier with linear backoff"),
        ([{"backoff": "steps", "steps": (1.0,), "delay": 1.0}], "delay", "no delay with steps backoff"),
        ([{"steps": (1.0,)}], "steps", "no steps with exponential backoff"),
        ([{"backoff": "steps"}], "backoff", "steps to be set as well"),
        ([{"backoff": "decorrelated", "jitter": Full()}], "jitter", HAS_ITS_OWN),
        ([{"jitter": Full()}, {"backoff": "decorrelated"}], "jitter", HAS_ITS_OWN),
    ],
)
def test_no_effect(sources, key, allowed):
    """BP-4: a part that the strategy does not support is rejected unless the strategy's source takes precedence."""
    with pytest.raises(OptionError) as caught:
        backoff(*(written(**source) for source in sources))

    assert (caught.value.key, caught.value.allowed) == (f"key.{key}", allowed)


@pytest.mark.parametrize(
    ("strategy", "below"),
    [
        ("fixed", {"multiplier": 2.0, "max_exponent": 3}),
        ("linear", {"multiplier": 2.0, "steps": (1.0,)}),
        ("decorrelated", {"jitter": Full(), "multiplier": 2.0}),
    ],
)
def test_overridden(strategy, below):
    """BP-3: a part that the strategy does not support is ignored if the strategy's source takes precedence."""
    assert backoff(written(backoff=strategy), written(**below)) == backoff(written(backoff=strategy))


def test_overridden_delay():
    """BP-3: a delay that is ignored in favour of `steps` does not raise the maximum."""
    composed = backoff(written(backoff="steps", steps=(1.0, 2.0)), written(delay=500.0))

    assert composed == BackoffPolicy(Steps((1.0, 2.0), 1.6), 120.0, Proportional(0.2))


def test_effective():
    """BP-3: `effective` contains exactly the values that apply, each with its source and key."""
    resolved = compose(
        RetryPolicy,
        [
            written(backoff="linear"),
            source_of("somewhere", {"max_delay": 9.0}),
            {"max_attempts": SourceValue(3, "retry", 2, "policy string")},
            PRESET_SOURCES["contention"],
        ],
    )

    assert resolved.effective == (
        Effective("backoff", "linear", "user: key.backoff"),
        Effective("delay", 0.01, "preset contention"),
        Effective("max_delay", 9.0, "somewhere"),
        Effective("jitter", RETRY_PRESETS["contention"].backoff.jitter, "preset contention"),
        Effective("max_attempts", 3, "policy string: retry"),
        Effective("codes", RETRY_PRESETS["contention"].codes, "preset contention"),
        Effective("server_delay_jitter", 0.0, "preset contention"),
        Effective("max_server_delay", None, "preset contention"),
        Effective("timeout", None, "preset contention"),
        Effective("deadline", 30.0, "preset contention"),
        Effective("never_ran_only", False, "preset contention"),
    )


def test_effective_jitter_of_decorrelated():
    """BP-3: a decorrelated backoff's jitter has the same source as the backoff."""
    effective = {
        value.part: value for value in compose(ConnectPolicy, [written(backoff="decorrelated"), GRPC]).effective
    }

    assert effective["jitter"] == Effective("jitter", NoJitter(), "user: key.backoff")
    assert "multiplier" not in effective


parts = {
    "delay": st.floats(0.001, 1000),
    "multiplier": st.floats(1, 10),
    "max_delay": st.floats(0.001, 1000),
    "jitter": st.sampled_from([NoJitter(), Full(), Proportional(0.5)]),
    "stable_after": st.floats(0, 10),
    "jitter_first": st.booleans(),
}
sources = st.lists(st.fixed_dictionaries({}, optional=parts), max_size=4)


@unhurried
@given(values=sources)
def test_nearest_has_its_say(values):
    """BP-3: every value comes from the first source that sets it, and is reported with that source."""
    resolved = compose(
        ConnectPolicy, [*(source_of(f"source {rank}", source) for rank, source in enumerate(values)), GRPC]
    )
    effective = {value.part: value for value in resolved.effective}

    for part in ("multiplier", "jitter", "stable_after", "jitter_first"):
        rank = next((rank for rank, source in enumerate(values) if part in source), None)
        assert effective[part].origin == ("preset grpc" if rank is None else f"source {rank}")
        assert effective[part].value == (GRPC[part].value if rank is None else values[rank][part])
    assert resolved.policy.backoff.jitter == effective["jitter"].value
    assert resolved.policy.stable_after == effective["stable_after"].value
    assert effective["delay"].value <= effective["max_delay"].value
