"""Scripts, as values and as text."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from grpc_judge.flaky import (
    AcceptClose,
    AcceptReset,
    MaxStreams,
    Refuse,
    ResetDuringData,
    Script,
    ScriptError,
    SettingsThenGoaway,
    Silent,
    SlowSettings,
    Step,
    Working,
)
from grpc_judge.flaky.behaviours import BY_NAME

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
    return Script((*steps, Step(draw(ENTRIES))))


@given(scripts())
def test_text_and_back(script):
    """IO-3: every script can be written as text, and parsing that text gives an equal script."""
    assert Script.parse(str(script)) == script


def test_what_a_text_can_say():
    """IO-3: semicolons or lines separate steps, values are named or positional, and bounds can be combined."""
    script = Script.parse(
        """
        accept_close x3; accept_close(0.5, true) x 1
        refuse(kill=true) until 5;  slow_settings ( delay = 1e-1 ) x2 until 10 for 2.5
        settings_then_goaway(ENHANCE_YOUR_CALM, after=1) for 3;; reset_during_data(code=CANCEL) x1
        working
        """.replace("x 1", "x1")
    )
    assert script == Script(
        (
            Step(AcceptClose(), times=3),
            Step(AcceptClose(after=0.5, tls=True), times=1),
            Step(Refuse(kill=True), until=5),
            Step(SlowSettings(0.1), times=2, until=10, lasting=2.5),
            Step(SettingsThenGoaway(code=ErrorCodes.ENHANCE_YOUR_CALM, after=1), lasting=3),
            Step(ResetDuringData(ErrorCodes.CANCEL), times=1),
            Step(Working()),
        )
    )


def test_always():
    """IO-3: `Script.always` gives every connection the same behaviour."""
    assert Script.always(Silent()) == Script.parse("silent")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty script: expected one step or more"),
        (" ; ", "empty script"),
        ("workin", r"behaviour='workin': expected one of refuse, accept_close, .*; did you mean 'working'\?$"),
        ("?", r"step='\?': expected NAME or NAME\(FIELD=VALUE, ...\), and bounds after it"),
        ("silent(tls", r"bound='\(tls': expected"),
        ("working y; working", "'working y': bound='y': expected xN, until T or for T"),
        ("working xx; working", "times='x': expected a whole number, 1 or more"),
        ("working x0; working", "times=0: expected a whole number, 1 or more"),
        ("working x-1; working", "times=-1: expected a whole number, 1 or more"),
        ("working x1 x2; working", "expected times once"),
        ("working until soon; working", "until='soon': expected a number of seconds, 0 or more"),
        ("working until -1; working", "until=-1.0: expected a number of seconds, 0 or more"),
        ("working for inf; working", "lasting=inf: expected a number of seconds, 0 or more"),
        ("working for nan; working", "lasting=nan: expected a number of seconds, 0 or more"),
        ("working; working", "working: others come after it, so it needs a bound: xN, until T or for T"),
        ("silent x1; working x1", "working x1: the last step goes on for ever, so it takes no bound"),
        ("refuse x2; working", "refuse: times=2: expected until or lasting, since no connection is accepted"),
        ("slow_settings(dela=1)", r"slow_settings: field='dela': expected one of delay; did you mean 'delay'\?"),
        ("tls_garbage(x=1)", "tls_garbage: field='x': expected no field"),
        ("slow_settings(1, 2)", r"slow_settings: value='2': expected at most 1 values \(delay\)"),
        ("slow_settings(1, delay=2)", "slow_settings: expected delay once"),
        ("slow_settings(late)", "slow_settings: delay='late': expected a number of seconds, 0 or more"),
        ("slow_settings(-1)", "slow_settings: delay=-1.0: expected a number of seconds, 0 or more"),
        ("slow_settings(nan)", "slow_settings: delay=nan: expected a number of seconds, 0 or more"),
        ("max_streams(1.5)", "max_streams: limit='1.5': expected a whole number from 0 to 2147483647"),
        ("max_streams(2147483648)", "max_streams: limit=2147483648: expected a whole number from 0 to"),
        ("accept_close(tls=yes)", "accept_close: tls='yes': expected true or false"),
        ("reset_after_data(BAD)", "reset_after_data: code='BAD': expected one of NO_ERROR, PROTOCOL_ERROR,"),
    ],
)
def test_what_it_cannot_say(text, why):
    """IO-3: an error in a script names the step, the field, the value and what is expected."""
    with pytest.raises(ScriptError, match=why):
        Script.parse(text)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: SlowSettings(-1.0), "slow_settings: delay=-1.0"),
        (lambda: SlowSettings("1"), "slow_settings: delay='1'"),
        (lambda: SlowSettings(True), "slow_settings: delay=True"),
        (lambda: MaxStreams(1.0), "max_streams: limit=1.0"),
        (lambda: AcceptReset(float("inf")), "accept_reset: after=inf"),
        (lambda: SettingsThenGoaway(code=11), "settings_then_goaway: code=11: expected one of NO_ERROR"),
        (lambda: Silent(tls=0), "silent: tls=0: expected true or false"),
    ],
)
def test_values_are_checked_without_a_text_too(make, why):
    """IO-3: a behaviour's constructor rejects wrong values, as the parser does."""
    with pytest.raises(ValueError, match=why):
        make()


def test_scripts_are_values():
    """IO-3: scripts are immutable, and they compare and hash by value."""
    script = Script.parse("silent x1; working")
    with pytest.raises(FrozenInstanceError):
        script.steps = ()
    with pytest.raises(FrozenInstanceError):
        script.steps[0].behaviour.tls = False
    assert {script} == {Script.parse("silent() x1; working")}
