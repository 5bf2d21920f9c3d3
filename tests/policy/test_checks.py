"""The checks of single values from any source."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.budget import BUDGETING
from grpc_backoff.policy.checks import Unit
from tests.policy.values import unhurried
from tests.texts import begins

NUMBERS = (
    checks.duration,
    checks.pause,
    checks.idle_timeout,
    checks.growth,
    checks.fraction,
    checks.factor,
    checks.retries,
    *(setting.check for setting in BUDGETING),
)
anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())


@pytest.mark.parametrize("check", NUMBERS)
@unhurried
@given(value=anything, unit=st.sampled_from(Unit))
def test_number_or_error(check, value, unit):
    """CH-10: for any value, a check either returns a number of at least 0 or raises an `OptionError`."""
    try:
        number = check("key", value, unit)
    except OptionError:
        return
    assert number >= 0


@unhurried
@given(value=anything)
def test_flag_or_error(value):
    """CH-10: a flag is a bool, 0 or 1; other truthy values are rejected."""
    try:
        assert checks.flag("key", value) is bool(value)
    except OptionError:
        assert value not in (0, 1) or isinstance(value, float)


@unhurried
@given(milliseconds=st.integers(1, 2**31 - 1))
def test_milliseconds(milliseconds):
    """CH-9: milliseconds convert to seconds without loss."""
    seconds = checks.duration("key", milliseconds, Unit.MILLISECONDS)

    assert round(seconds * 1000) == milliseconds
    assert checks.duration("key", seconds) == seconds


@pytest.mark.parametrize("value", [2**31 - 1, 2**31 - 2])
def test_never_in_milliseconds(value):
    """CB-14: in milliseconds, only the largest 32-bit integer means never."""
    assert math.isinf(checks.idle_timeout("key", value, Unit.MILLISECONDS)) == (value == 2**31 - 1)


def test_choice():
    """CH-10: a name must match one of the choices exactly, including its case."""
    assert checks.choice("key", "b", iter("ab")) == "b"

    with pytest.raises(OptionError, match="'a' or 'b'"):
        checks.choice("key", "B", iter("ab"))


TIMES = [
    ("500ms", 0.5),
    ("1s", 1.0),
    ("2m", 120.0),
    ("1h", 3600.0),
    ("3", 3.0),
    ("0.5", 0.5),
    ("1.25s", 1.25),
    ("0.001ms", 0.000001),
    ("10 s", 10.0),
    (2, 2),
    (0.25, 0.25),
]
NO_TIMES = [
    *("", " ", "s", ".5s", "1.s", "1,5s", "-1s", "+1s", "1e3s", "1S", "1 S", "1sec", "1w", "5 parsecs", "1s 2s", " 1s"),
    *("1s ", "1s\n", "inf", "nan", "infs", "1_000s", "0x1s", "9" * 400 + "s"),
    *(None, True, b"1s", ["1s"], math.nan, math.inf, -1, -0.5, 10**400),
]


@pytest.mark.parametrize("check", [checks.duration, checks.pause, checks.idle_timeout])
@pytest.mark.parametrize(("written", "seconds"), TIMES)
def test_written(check, written, seconds):
    """BP-2: a time in text is a number with a unit, or a number of seconds."""
    least = 1.0 if check is checks.idle_timeout else 0.0

    assert check("key", written, Unit.WRITTEN) == max(seconds, least)


@pytest.mark.parametrize("check", [checks.duration, checks.pause])
@pytest.mark.parametrize("written", NO_TIMES, ids=lambda written: ascii(written)[:20])
def test_no_time(check, written):
    """BP-2: a text that is not a time is rejected, and the error shows the valid forms."""
    with pytest.raises(
        OptionError, match=r'a finite.* number of seconds.*, or a string such as "500ms", "1s" or "2m"$'
    ):
        check("key", written, Unit.WRITTEN)


@pytest.mark.parametrize("written", ["0", "0s", "0.0ms", 0, 0.0])
def test_nothing(written):
    """BP-2: a pause may be 0, but a duration may not."""
    assert checks.pause("key", written, Unit.WRITTEN) == 0

    with pytest.raises(OptionError, match="a finite number of seconds above 0"):
        checks.duration("key", written, Unit.WRITTEN)


@pytest.mark.parametrize("unit", [Unit.SECONDS, Unit.MILLISECONDS])
@pytest.mark.parametrize("check", [checks.duration, checks.idle_timeout])
def test_text_only_where_people_write(check, unit):
    """CH-9: times in options and arguments are numbers, not text."""
    with pytest.raises(OptionError):
        check("key", "1s", unit)


@pytest.mark.parametrize(
    ("check", "value", "unit", "read"),
    [
        # A list of waits may be written as one string.
        (checks.steps, "1s 2s 4", Unit.WRITTEN, (1.0, 2.0, 4.0)),
        (checks.steps, " 500ms ", Unit.WRITTEN, (0.5,)),
        (checks.steps, ["1s", 2, 0.5], Unit.WRITTEN, (1.0, 2.0, 0.5)),
        (checks.steps, (1, 2.5), Unit.SECONDS, (1.0, 2.5)),
        # Durations may be given in days.
        (checks.duration, "1d", Unit.WRITTEN, 86_400),
        (checks.pause, "1.5 d", Unit.WRITTEN, 129_600),
        # An idle timeout in the file may be infinite, if it is given as a number (CB-14).
        (checks.idle_timeout, math.inf, Unit.WRITTEN, math.inf),
        # `max_attempts` counts all attempts and may be unlimited; the number of retries is one less (RT-1).
        *((checks.attempts, value, Unit.SECONDS, value) for value in (1, 5, None)),
        (checks.attempts, "unlimited", Unit.SECONDS, None),
        *((checks.retries, value, Unit.SECONDS, value + 1) for value in (0, 1, 5)),
        # Codes may be given in any kind of list or set, in any case and repeatedly, or as one string (RT-2).
        *((checks.codes, kind(["ABORTED"]), Unit.SECONDS, {"ABORTED"}) for kind in (list, tuple, set, frozenset)),
        (checks.codes, "ABORTED", Unit.SECONDS, {"ABORTED"}),
        (checks.codes, ["aborted", "Aborted", "ABORTED"], Unit.SECONDS, {"ABORTED"}),
        (checks.codes, " ABORTED  UNAVAILABLE ", Unit.SECONDS, {"ABORTED", "UNAVAILABLE"}),
        (checks.codes, "ABORTED, unavailable", Unit.WRITTEN, {"ABORTED", "UNAVAILABLE"}),
        (checks.codes, "ABORTED,UNAVAILABLE", Unit.SECONDS, {"ABORTED", "UNAVAILABLE"}),
    ],
)
def test_spellings(check, value, unit, read):
    """BP-2, RT-1, RT-2: a value may be written in several ways."""
    assert check("key", value, unit) == read


@pytest.mark.parametrize(
    ("value", "unit", "message"),
    [
        ("1s 2x", Unit.WRITTEN, "key[1]='2x': expected a finite number of seconds above 0, or a string"),
        ([1, -1], Unit.SECONDS, "key[1]=-1: expected a finite number of seconds above 0"),
        (["1s"], Unit.SECONDS, "key[0]='1s': expected a finite number of seconds above 0"),
        ("1s 2s", Unit.SECONDS, "key='1s 2s': expected a list of at least one wait"),
        ("  ", Unit.WRITTEN, "key='  ': expected a list of at least one wait"),
        ({1: 2}, Unit.SECONDS, "key={1: 2}: expected a list of at least one wait"),
        (5, Unit.SECONDS, "key=5: expected a list of at least one wait"),
    ],
)
def test_no_steps(value, unit, message):
    """BP-4: the error for a bad list names the wait at fault."""
    with pytest.raises(OptionError, match=begins(message)):
        checks.steps("key", value, unit)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("unavailible", "UNAVAILABLE"),
        ("UNAVAILABEL", "UNAVAILABLE"),
        ("ABORTED ", "ABORTED"),
        ("timeout_", None),
        ("resource-exhausted", "RESOURCE_EXHAUSTED"),
        ("DeadlineExceeded", "DEADLINE_EXCEEDED"),
    ],
)
def test_a_misspelt_code(name, meant):
    """CH-10: the error for a misspelt code suggests the most similar code, if there is a similar one."""
    hint = f": expected a status code; did you mean {meant!r}?"
    with pytest.raises(OptionError, match=re.escape(hint if meant else " or 'UNAUTHENTICATED'") + "$"):
        checks.codes("key", [name])


@pytest.mark.parametrize("entry", [["ABORTED"], {"ABORTED": 1}, {"ABORTED"}, b"ABORTED", 10, None, "OK", "NOPE"])
def test_no_code_in_a_list(entry):
    """RT-2: every entry in a list of codes is checked, even an unhashable one, and the error shows it (CH-10)."""
    with pytest.raises(OptionError, match=begins(f"key={entry!r}: expected 'CANCELLED', 'UNKNOWN', ")) as caught:
        checks.codes("key", ["UNAVAILABLE", entry])

    assert (caught.value.key, caught.value.value) == ("key", entry)


@pytest.mark.parametrize(
    ("check", "least", "most"), [(BUDGETING[0].check, 1e-300, 1000), (BUDGETING[1].check, 0.001, 1000)]
)
@pytest.mark.parametrize("unit", Unit)
def test_tokens(check, least, most, unit):
    """RT-9: gRFC A6's limits apply to the numbers of a budget, which the unit for times does not affect."""
    assert [check("key", value, unit) for value in (least, 1, most)] == [least, 1, most]
    for value in (0, -1, most + 0.001, math.nan, math.inf, "1", True, None):
        with pytest.raises(OptionError, match=r"^key="):
            check("key", value, unit)
