"""Scripts as values and as text."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from interop.flaky import (
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
from interop.flaky.behaviours import BY_NAME

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
    """IO-3: every script has a text, and its text makes the same script."""
    assert Script.parse(str(script)) == script


def test_what_a_text_can_say():
    """IO-3: steps by semicolon or line, values by name or in order, each bound alone or with others."""
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
    """IO-3: the same for every connection."""
    assert Script.always(Silent()) == Script.parse("silent")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a script is empty; allowed is one step or more"),
        (" ; ", "a script is empty"),
        ("workin", "'workin' is not a behaviour, 'working' is; allowed are refuse, accept_close,"),
        ("?", r"'\?' is not a step; allowed is NAME or NAME\(FIELD=VALUE, ...\), and bounds after it"),
        ("silent(tls", r"'\(tls' is not a bound"),
        ("working y; working", "'working y': 'y' is not a bound; allowed are xN, until T and for T"),
        ("working xx; working", "times is 'x'; allowed is a whole number, 1 or more"),
        ("working x0; working", "times is 0; allowed is a whole number, 1 or more"),
        ("working x-1; working", "times is -1; allowed is a whole number, 1 or more"),
        ("working x1 x2; working", "times is given twice"),
        ("working until soon; working", "until is 'soon'; allowed is a number of seconds, 0 or more"),
        ("working until -1; working", "until is -1.0; allowed is a number of seconds, 0 or more"),
        ("working for inf; working", "lasting is inf; allowed is a number of seconds, 0 or more"),
        ("working for nan; working", "lasting is nan; allowed is a number of seconds, 0 or more"),
        ("working; working", "working: others come after it, so it needs a bound: xN, until T or for T"),
        ("silent x1; working x1", "working x1: the last step goes on for ever, so it takes no bound"),
        ("refuse x2; working", "refuse: times is 2; as nothing is accepted, allowed are until and lasting"),
        ("slow_settings(dela=1)", "slow_settings has no field 'dela', 'delay' is; allowed are delay"),
        ("tls_garbage(x=1)", "tls_garbage has no field 'x'; allowed are none"),
        ("slow_settings(1, 2)", "slow_settings: '2' is one value too many; its fields are delay"),
        ("slow_settings(1, delay=2)", "slow_settings: delay is given twice"),
        ("slow_settings(late)", "slow_settings: delay is 'late'; allowed is a number of seconds, 0 or more"),
        ("slow_settings(-1)", "slow_settings: delay is -1.0; allowed is a number of seconds, 0 or more"),
        ("slow_settings(nan)", "slow_settings: delay is nan; allowed is a number of seconds, 0 or more"),
        ("max_streams(1.5)", "max_streams: limit is '1.5'; allowed is a whole number from 0 to 2147483647"),
        ("max_streams(2147483648)", "max_streams: limit is 2147483648; allowed is a whole number from 0 to"),
        ("accept_close(tls=yes)", "accept_close: tls is 'yes'; allowed is true or false"),
        ("reset_after_data(BAD)", "reset_after_data: code is 'BAD'; allowed is one of NO_ERROR, PROTOCOL_ERROR,"),
    ],
)
def test_what_it_cannot_say(text, why):
    """IO-3: an error names the step, the field, the value and what is allowed."""
    with pytest.raises(ScriptError, match=why):
        Script.parse(text)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: SlowSettings(-1.0), "slow_settings: delay is -1.0"),
        (lambda: SlowSettings("1"), "slow_settings: delay is '1'"),
        (lambda: SlowSettings(True), "slow_settings: delay is True"),
        (lambda: MaxStreams(1.0), "max_streams: limit is 1.0"),
        (lambda: AcceptReset(float("inf")), "accept_reset: after is inf"),
        (lambda: SettingsThenGoaway(code=11), "settings_then_goaway: code is 11; allowed is one of NO_ERROR"),
        (lambda: Silent(tls=0), "silent: tls is 0; allowed is true or false"),
    ],
)
def test_values_are_checked_without_a_text_too(make, why):
    """IO-3: a behaviour with a value that is not allowed cannot be made."""
    with pytest.raises(ValueError, match=why):
        make()


def test_scripts_are_values():
    """IO-3: a script cannot be changed, and equal scripts are equal."""
    script = Script.parse("silent x1; working")
    with pytest.raises(FrozenInstanceError):
        script.steps = ()
    with pytest.raises(FrozenInstanceError):
        script.steps[0].behaviour.tls = False
    assert {script} == {Script.parse("silent() x1; working")}
