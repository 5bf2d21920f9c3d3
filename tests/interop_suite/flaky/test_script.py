"""Scripts, as values and as JSON."""

from __future__ import annotations

from dataclasses import fields

import pytest
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from grpc_judge.flaky import (
    AcceptClose,
    AcceptReset,
    MaxStreams,
    Refuse,
    SettingsThenGoaway,
    Silent,
    SlowSettings,
    Step,
    Working,
    read_script,
    write_script,
)
from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.flaky.script import steps_of

SECONDS = st.floats(0, 1e6, allow_nan=False)
VALUES = {
    bool: st.booleans(),
    int: st.integers(0, 2**31 - 1),
    float: SECONDS,
    ErrorCodes: st.sampled_from(ErrorCodes),
}
ENTRIES = st.one_of(
    [
        st.builds(kind, **{field.name: VALUES[type(field.default)] for field in fields(kind)})
        for kind in BY_NAME.values()
    ]
)


@st.composite
def scripts(draw):
    steps = []
    for entry in draw(st.lists(ENTRIES, max_size=5)):
        times = None if isinstance(entry, Refuse) else draw(st.none() | st.integers(1, 10**6))
        until, lasting = draw(st.none() | SECONDS), draw(SECONDS if times is None else st.none() | SECONDS)
        steps.append(Step(entry, times=times, until=until, lasting=lasting))
    return (*steps, Step(draw(ENTRIES)))


@given(scripts())
def test_json_and_back(script):
    """IO-3: every script can be written as JSON, and reading that gives an equal script."""
    assert read_script(write_script(script)) == script


def test_what_json_can_say():
    """IO-3: a step is a name or an object with fields and bounds; error codes are names."""
    script = read_script(
        """[
        {"behaviour": "accept_close", "after": 0.5, "tls": true, "times": 3},
        {"behaviour": "slow_settings", "delay": 1e-1, "times": 2, "until": 10, "lasting": 2.5},
        {"behaviour": "settings_then_goaway", "code": "ENHANCE_YOUR_CALM", "lasting": 3},
        "working"
        ]"""
    )
    assert script == (
        Step(AcceptClose(after=0.5, tls=True), times=3),
        Step(SlowSettings(0.1), times=2, until=10, lasting=2.5),
        Step(SettingsThenGoaway(code=ErrorCodes.ENHANCE_YOUR_CALM), lasting=3),
        Step(Working()),
    )


def test_short_forms():
    """IO-3: a behaviour stands for a step without bounds, and for a script that gives it to every connection."""
    assert steps_of(Silent()) == steps_of([Silent()]) == read_script('"silent"') == (Step(Silent()),)
    with pytest.raises(TypeError, match=r"behaviour='silent': expected a behaviour, such as Working\(\)"):
        steps_of("silent")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "empty script: expected one step or more"),
        ("working", "Expecting value: line 1"),
        ('["workin"]', "behaviour='workin': expected one of refuse, accept_close,"),
        ("[{}]", "behaviour=None: expected one of refuse"),
        ("[[]]", r"behaviour=\[\]: expected one of refuse"),
        ('["working", "working"]', "working: others come after it, so it needs one of times, until, lasting"),
        ('[{"behaviour": "silent", "dela": 1}]', "silent: dela=1: expected one of tls, times, until, lasting"),
        ('[{"behaviour": "slow_settings", "delay": "late"}]', "slow_settings: delay='late': expected a number of sec"),
        ('[{"behaviour": "slow_settings", "delay": NaN}]', "slow_settings: delay=nan: expected a number of seconds"),
        ('[{"behaviour": "reset_after_data", "code": "BAD"}]', "reset_after_data: code='BAD': expected one of NO_ERR"),
        ('[{"behaviour": "reset_after_data", "code": 8}]', "reset_after_data: code=8: expected one of NO_ERROR"),
    ],
)
def test_what_json_cannot_say(text, why):
    """IO-3: an error in a script names the behaviour, the field, the value and what is expected."""
    with pytest.raises(ValueError, match=why):
        read_script(text)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: SlowSettings(-1.0), "slow_settings: delay=-1.0: expected a number of seconds, 0 or more"),
        (lambda: SlowSettings("1"), "slow_settings: delay='1'"),
        (lambda: SlowSettings(True), "slow_settings: delay=True"),
        (lambda: MaxStreams(1.0), "max_streams: limit=1.0: expected a whole number from 0 to 2147483647"),
        (lambda: MaxStreams(2**31), "max_streams: limit=2147483648"),
        (lambda: AcceptReset(float("inf")), "accept_reset: after=inf"),
        (lambda: SettingsThenGoaway(code=11), "settings_then_goaway: code=11: expected one of NO_ERROR"),
        (lambda: Silent(tls=0), "silent: tls=0: expected true or false"),
        (lambda: Step(Working(), times=0), "working: times=0: expected a whole number, 1 or more"),
        (lambda: Step(Working(), times="3"), "working: times='3': expected a whole number, 1 or more"),
        (lambda: Step(Working(), until=-1), "working: until=-1: expected a number of seconds, 0 or more"),
        (lambda: Step(Working(), lasting="2"), "working: lasting='2': expected a number of seconds, 0 or more"),
        (lambda: Step(Refuse(), times=2), "refuse: times=2: expected until or lasting"),
        (lambda: steps_of([Step(Working(), times=1)]), "working: the last step goes on for ever, so it takes no bound"),
    ],
)
def test_values_are_checked(make, why):
    """IO-3: behaviours, steps and scripts reject wrong values."""
    with pytest.raises(ValueError, match=why):
        make()
