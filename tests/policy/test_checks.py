"""The checks of single values, apart from where the values stand."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # no test asserts speed
NUMBERS = (checks.duration, checks.idle_timeout, checks.stable_after, checks.growth, checks.fraction)
anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())


@pytest.mark.parametrize("check", NUMBERS)
@unhurried
@given(value=anything, unit=st.sampled_from(Unit))
def test_number_or_error(check, value, unit):
    """CH-10: whatever comes, a check gives a number that is not NaN and not negative, or an OptionError."""
    try:
        number = check("key", value, unit)
    except OptionError:
        return
    assert number >= 0


@unhurried
@given(value=anything)
def test_flag_or_error(value):
    """CH-10: a flag is a bool or one of two numbers, nothing that is merely true."""
    try:
        assert checks.flag("key", value) is bool(value)
    except OptionError:
        assert value not in (0, 1) or isinstance(value, float)


@unhurried
@given(milliseconds=st.integers(1, 2**31 - 1))
def test_milliseconds(milliseconds):
    """CH-9: milliseconds become seconds and lose nothing."""
    seconds = checks.duration("key", milliseconds, Unit.MILLISECONDS)

    assert round(seconds * 1000) == milliseconds
    assert checks.duration("key", seconds) == seconds


@pytest.mark.parametrize("value", [2**31 - 1, 2**31 - 2])
def test_never_in_milliseconds(value):
    """CB-14: only the largest number of 32 bits is never."""
    assert math.isinf(checks.idle_timeout("key", value, Unit.MILLISECONDS)) == (value == 2**31 - 1)


def test_choice():
    """CH-10: a name is one of those that there are, in their very letters."""
    assert checks.choice("key", "b", iter("ab")) == "b"

    with pytest.raises(OptionError, match="'a' or 'b' is"):
        checks.choice("key", "B", iter("ab"))
