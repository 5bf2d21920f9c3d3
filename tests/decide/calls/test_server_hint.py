"""Server hints in every form, including malformed ones."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.util import find_spec
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from hypothesis import example, given
from hypothesis import strategies as st

import grpc_backoff
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.decide.calls import server_hint as server_word
from grpc_backoff.decide.calls.events import WaitSource
from grpc_backoff.decide.calls.server_hint import ServerHint, hint_window, read_hint
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.echo import Echo, EchoStub, Message, serving
from tests.policy.values import retry_policies, unhurried

PUSHBACK = "grpc-retry-pushback-ms"
DETAILS = "grpc-status-details-bin"
RETRY_AFTER = "retry-after"

NOW = datetime(2026, 7, 31, 12, 0, 0, tzinfo=UTC)


def wall_clock():
    return NOW.timestamp()


def heard(*trailing, initial=()):
    return read_hint(trailing, initial, wall_clock)


def stop(source=WaitSource.PUSHBACK):
    return ServerHint(None, source)


# gRPC's pushback.


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("0", 0.0),
        ("250", 0.25),
        ("1", 0.001),
        ("60000", 60.0),
        ("0250", 0.25),
        ("-0", 0.0),
        ("2147483647", 2147483.647),
    ],
)
def test_pushback(value, delay):
    """RT-3: a pushback of zero or more milliseconds is the wait."""
    assert heard((PUSHBACK, value)) == ServerHint(delay, WaitSource.PUSHBACK)


@pytest.mark.parametrize(
    "value",
    [
        *("-1", "-250", "-2147483648", "-2147483649"),
        "-9223372036854775808",  # grpcio's core replaces every value that it cannot parse with this
        *("2147483648", "4294967296", "9999999999", "99999999999", "9223372036854775807", "1" * 5000),
        *("abc", "", " ", "-", "--1", "+250", " 250", "250 ", "250ms", "0.25", "2.5e2", "1,000", "1_000", "0x10"),
        *("nan", "inf", "٢٥٠", "²⁵⁰", "२५०", "250\n", "\x00"),
        *(b"250", b"", b"-1"),
    ],
    ids=ascii,
)
def test_no_pushback(value):
    """RT-3: a pushback that is negative, exceeds 32 bits or is not a number means no retry."""
    assert heard((PUSHBACK, value)) == stop()


class Pusher(Echo):
    """A server that fails each call with the request's text as pushback."""

    async def Unary(self, request, context):  # noqa: N802
        await context.abort(grpc.StatusCode.UNAVAILABLE, "busy", ((PUSHBACK, request.text), (RETRY_AFTER, "5")))


@pytest.mark.parametrize(
    ("sent", "delay"),
    [
        *(("0", 0.0), ("250", 0.25), ("2147483647", 2147483.647), ("+250", 0.25)),
        *((value, None) for value in ("-1", "abc", "250ms", "0.25", "2147483648", "9" * 18, "9" * 19, "9" * 30)),
    ],
)
async def test_pushback_through_grpc(sent, delay):
    """RT-3: the core parses and rewrites the pushback trailer without changing its meaning."""
    async with serving(Pusher()) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await EchoStub(channel).Unary(Message(text=sent), timeout=20)
    trailing, initial = caught.value.trailing_metadata(), caught.value.initial_metadata()

    assert read_hint(trailing, initial, wall_clock) == ServerHint(delay, WaitSource.PUSHBACK)


# google.rpc.RetryInfo.


def duration(seconds, nanos=0):
    return duration_pb2.Duration(seconds=seconds, nanos=nanos)


def packed(message):
    detail = any_pb2.Any()
    detail.Pack(message)
    return detail


def retry_info(seconds, nanos=0):
    return packed(error_details_pb2.RetryInfo(retry_delay=duration(seconds, nanos)))


def status(*details):
    return (DETAILS, status_pb2.Status(code=14, message="später", details=details).SerializeToString())


OTHERS = [
    packed(error_details_pb2.DebugInfo(detail="no", stack_entries=["a", "b"])),
    packed(error_details_pb2.ErrorInfo(reason="BUSY", domain="example", metadata={"retry-after": "9"})),
    packed(error_details_pb2.QuotaFailure()),
    packed(duration(7)),
    any_pb2.Any(type_url="type.googleapis.com/nobody.Knows", value=b"\xff\xff"),
    any_pb2.Any(type_url="google.rpc.RetryInfo", value=duration(8).SerializeToString()),  # no URL
    any_pb2.Any(),
]


@pytest.mark.parametrize(
    ("seconds", "nanos", "delay"),
    [
        (3, 0, 3.0),
        (0, 250_000_000, 0.25),
        (1, 500_000_000, 1.5),
        (0, 0, 0.0),
        (0, 1, 1e-9),
        (315_576_000_000, 999_999_999, 315_576_000_000.999_999_999),
        (2**63 - 1, 2**31 - 1, float(2**63)),
        (-3, 0, 0.0),
        (0, -1, 0.0),
        (-(2**63), -(2**31), 0.0),
    ],
)
def test_retry_info(seconds, nanos, delay):
    """RT-3: the delay of a RetryInfo is the wait, to the nanosecond; a negative delay means no wait."""
    word = heard(status(retry_info(seconds, nanos)))

    assert word == ServerHint(delay, WaitSource.RETRY_INFO)
    assert type(word.delay) is float


@pytest.mark.parametrize("origin", ["type.googleapis.com", "example.com/x"])
@pytest.mark.parametrize("place", range(len(OTHERS) + 1))
def test_retry_info_among_others(place, origin):
    """RT-3: a RetryInfo is found anywhere among the details, and the first of two counts.

    The type of a detail is the last part of its `type_url`; the parts before it do not matter.
    """
    info = any_pb2.Any(type_url=f"{origin}/google.rpc.RetryInfo", value=retry_info(2).value)
    details = [*OTHERS[:place], info, *OTHERS[place:], retry_info(9)]

    assert heard(status(*details)) == ServerHint(2.0, WaitSource.RETRY_INFO)


@pytest.mark.parametrize(
    "details", [(), OTHERS, [packed(error_details_pb2.RetryInfo())]], ids=["none", "others", "empty"]
)
def test_no_retry_info(details):
    """RT-3: a rich status without a RetryInfo gives no hint, and neither does a RetryInfo without a delay."""
    assert heard(status(*details)) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00",
        b"\xff" * 20,
        b"garbage",
        status(retry_info(3))[1][:-1],
        status(any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff\xff"))[1],
        b"\x12\x02\xff\xfe" + status(retry_info(3))[1],  # a message that is not UTF-8
        "text",
        "",
    ],
)
def test_garbage_for_a_status(value):
    """RT-3: a malformed rich status is ignored; protobuf's errors do not reach the call."""
    assert heard((DETAILS, value)) is None
    assert heard((DETAILS, value), (RETRY_AFTER, "5")) == ServerHint(5.0, WaitSource.RETRY_AFTER)


# HTTP's retry-after.


@pytest.mark.parametrize(
    ("value", "delay"),
    [("0", 0.0), ("1", 1.0), ("120", 120.0), ("007", 7.0), ("86400", 86400.0), ("9999999999", 9_999_999_999.0)],
)
def test_seconds(value, delay):
    """RT-3: `retry-after` may be any number of seconds; `max_server_delay` and the deadline limit it later."""
    assert heard((RETRY_AFTER, value)) == ServerHint(delay, WaitSource.RETRY_AFTER)


LAST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - NOW).total_seconds()
IN_90_S = [
    "Fri, 31 Jul 2026 12:01:30 GMT",  # RFC 9110's own form
    "Friday, 31-Jul-26 12:01:30 GMT",  # RFC 850's
    "Fri Jul 31 12:01:30 2026",  # asctime's, which is GMT although it does not say so
    "31 Jul 2026 12:01:30 GMT",
    "Fri, 31 Jul 2026 14:01:30 +0200",
    "Fri, 31 Jul 2026 12:01:30 -0000",
    "Fri, 31 Jul 2026 12:01:30",
    "Fri, 31 Jul 2026 07:01:30 EST",
]


@pytest.fixture
def far_from_greenwich(monkeypatch):
    """Set another time zone for this process during the test."""
    monkeypatch.setenv("TZ", "XXX-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_greenwich")
@pytest.mark.parametrize("value", IN_90_S)
def test_date(value):
    """RT-3: `retry-after` may be a date in any form that HTTP allows; the local time zone has no effect."""
    assert time.timezone == -5.5 * 3600
    assert heard((RETRY_AFTER, value)) == ServerHint(90.0, WaitSource.RETRY_AFTER)


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("Fri, 31 Jul 2026 12:00:00 GMT", 0.0),
        ("Fri, 31 Jul 2026 11:59:59 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Mon, 01 Jan 1000 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LAST),
        ("Fri, 31 Dec 9999 23:59:59 -2359", LAST + 23 * 3600 + 59 * 60),
    ],
)
def test_past_and_far_future(value, delay):
    """RT-3: a date in the past means no wait, and a date in the far future is not capped."""
    assert heard((RETRY_AFTER, value)) == ServerHint(delay, WaitSource.RETRY_AFTER)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "-1", "-120", "+120", "1.5", "1e3", "120s", " 120", "120 ", "0x10", "1_000", "1,000", "inf", "nan"),
        *("١٢٠", "१२०", "¹²", "99999999999", "9" * 5000, "soon", "tomorrow", "Fri", "12:01:30", "\x00"),
        "Fri, 31 Jul 2026",
        "2026-07-31T12:01:30Z",
        "Fri, 32 Jul 2026 12:01:30 GMT",
        "Fri, 31 Jul 2026 25:01:30 GMT",
        "Fri, 31 Jul 2026 12:01:30 +9999",
        "Fri, 31 Jul 2026 12:01:30 +99999999999999",
        "Fri, 31 Jul 99999999999999999999 12:01:30 GMT",
        "06 Nov 1994 08:4937250100",
        "17 June , 2022",
        b"120",
        b"",
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_no_retry_after(value):
    """RT-3: a `retry-after` that is neither a number of seconds nor a date is ignored."""
    assert heard((RETRY_AFTER, value)) is None


def test_only_a_date_asks_the_time():
    """CB-12: the wall clock is read only if the server gave a date."""

    def never():
        raise AssertionError("nobody asked for the date")

    others = (PUSHBACK, "250"), (PUSHBACK, "abc"), status(retry_info(3)), (RETRY_AFTER, "5"), (RETRY_AFTER, "soon")
    for pair in others:
        read_hint([pair], [], never)


@given(moment=st.integers(0, 253_402_300_799).map(lambda at: datetime.fromtimestamp(at, UTC)))
def test_dates_as_they_are_sent(moment):
    """RT-3: every date in the standard HTTP format is read correctly."""
    expected = max(timedelta(0), moment - NOW).total_seconds()

    assert heard((RETRY_AFTER, format_datetime(moment, usegmt=True))).delay == expected


# Precedence.

PUSHED, INFO, AFTER = (PUSHBACK, "250"), status(retry_info(3)), (RETRY_AFTER, "5")


@pytest.mark.parametrize(
    ("trailing", "initial", "delay", "source"),
    [
        ([PUSHED, INFO, AFTER], [], 0.25, WaitSource.PUSHBACK),
        ([AFTER, INFO, PUSHED], [], 0.25, WaitSource.PUSHBACK),
        ([INFO, AFTER], [], 3.0, WaitSource.RETRY_INFO),
        ([AFTER, INFO], [], 3.0, WaitSource.RETRY_INFO),
        ([AFTER], [], 5.0, WaitSource.RETRY_AFTER),
        ([(PUSHBACK, "abc"), INFO, AFTER], [], None, WaitSource.PUSHBACK),  # malformed, but present
        ([status(), AFTER], [], 5.0, WaitSource.RETRY_AFTER),
        ([], [AFTER], 5.0, WaitSource.RETRY_AFTER),
        ([(RETRY_AFTER, "7")], [AFTER], 7.0, WaitSource.RETRY_AFTER),
        ([PUSHED], [AFTER], 0.25, WaitSource.PUSHBACK),
        ([INFO], [AFTER], 3.0, WaitSource.RETRY_INFO),
        ([AFTER], [(PUSHBACK, "abc"), INFO], 5.0, WaitSource.RETRY_AFTER),  # both count only as trailers
        ([(RETRY_AFTER, "7"), AFTER], [], 5.0, WaitSource.RETRY_AFTER),
    ],
)
def test_order(trailing, initial, delay, source):
    """RT-3: pushback precedes RetryInfo, which precedes `retry-after`, the only one allowed in initial metadata."""
    assert read_hint(trailing, initial, wall_clock) == ServerHint(delay, source)


@pytest.mark.parametrize(
    ("trailing", "initial"),
    [
        ([], []),
        ([("x", "1")], [("y", b"2")]),
        ([("Retry-After", "5"), ("retry-after-bin", b"5"), ("grpc-retry-pushback", "5")], []),
        ([], [PUSHED, INFO]),
    ],
)
def test_nothing_said(trailing, initial):
    """RT-3: metadata without the three keys gives no hint; pushback and RetryInfo count only in the trailers."""
    assert read_hint(trailing, initial, wall_clock) is None


def test_any_iterable():
    """RT-3: the metadata may be iterators, because each is read only once."""
    for trailing, initial in (([AFTER], []), ([], [AFTER])):
        assert read_hint(iter(trailing), iter(initial), wall_clock) == ServerHint(5.0, WaitSource.RETRY_AFTER)


# Arbitrary metadata.

keys = st.sampled_from([PUSHBACK, DETAILS, RETRY_AFTER]) | st.text(max_size=10)
numbers = st.integers().map(str) | st.floats().map(str)
dates = st.lists(
    st.sampled_from(["Fri,", "31", "Jul", "2026", "12:01:30", "GMT", "+0200", "-", ":", "1.2.3.4", "é"])
).map(" ".join)
garbled = st.builds(
    lambda cut, junk: INFO[1][:cut] + junk + INFO[1][cut:],
    st.integers(0, len(INFO[1])),
    st.binary(min_size=1, max_size=8),
)
values = st.text() | st.binary() | numbers | dates | garbled
metadata = st.lists(st.tuples(keys, values), max_size=6)


@unhurried
@given(trailing=metadata, initial=metadata, now=st.floats(-1e12, 1e12))
@example(trailing=[(RETRY_AFTER, "Fri, 31 Jul 2026 12:01:30 GMT")], initial=[], now=-1e12)
@example(trailing=[(DETAILS, b"\x12\x02\xff\xfe")], initial=[(RETRY_AFTER, "1" * 4400)], now=0.0)
def test_whatever_is_sent(trailing, initial, now):
    """RT-3: no metadata makes `read_hint` raise an exception, and no wait is negative, infinite or NaN."""
    word = read_hint(trailing, initial, lambda: now)

    if word is None:
        assert PUSHBACK not in dict(trailing)
    elif word.delay is None:
        assert word.source is WaitSource.PUSHBACK
    else:
        assert 0 <= word.delay < math.inf
        assert type(word.delay) is float


@given(value=st.text() | st.binary() | numbers)
def test_any_pushback(value):
    """RT-3: any pushback value produces a hint: a wait below 2**31 ms, or no retry."""
    word = heard((PUSHBACK, value))

    assert word.source is WaitSource.PUSHBACK
    assert word.delay is None or word.delay * 1000 == pytest.approx(int(value), abs=1e-6)
    assert word.delay is None or 0 <= word.delay <= 2147483.647


# Without the extra `status`.


def output_of(code, *flags, **environment):
    """Return the lines that a program prints in a process of its own."""
    command, env = [sys.executable, *flags, "-c", code], {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.splitlines()


@pytest.fixture
def fresh():
    """Clear the cache of imported protobuf messages before and after the test."""
    server_word._messages.cache_clear()
    yield
    server_word._messages.cache_clear()


@pytest.mark.parametrize("missing", ["google.rpc", "google.protobuf.message"])
def test_a_package_is_missing(fresh, monkeypatch, missing):
    """RT-3: without googleapis-common-protos or protobuf, RetryInfo is ignored, and the other hints still work."""
    monkeypatch.setitem(sys.modules, missing, None)  # makes importing it raise ImportError

    assert heard(INFO) is None
    assert heard(INFO, AFTER) == ServerHint(5.0, WaitSource.RETRY_AFTER)
    assert heard(INFO, PUSHED) == ServerHint(0.25, WaitSource.PUSHBACK)


@pytest.fixture
def bare(tmp_path):
    """Return the path of a folder with only this library and its dependencies."""
    for name in ("grpc", "typing_extensions"):
        origin = Path(find_spec(name).origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (tmp_path / source.name).symlink_to(source)
    (tmp_path / "grpc_backoff").symlink_to(Path(grpc_backoff.__file__).parent)
    return tmp_path


def test_without_the_extra(bare):
    """RT-3: with grpcio alone installed, the library works and ignores RetryInfo."""
    code = (
        f"import sys; sys.path.insert(0, {str(bare)!r})\n"
        "import importlib.util, time\n"
        "from grpc_backoff import aio\n"
        "from grpc_backoff.decide.calls.server_hint import read_hint\n"
        "print(importlib.util.find_spec('google'))\n"
        f"print(read_hint([{INFO!r}], [], time.time))\n"
        f"print(read_hint([{INFO!r}, {AFTER!r}], [], time.time))\n"
    )
    assert output_of(code, "-I", "-S") == [  # without this installation's packages
        "None",
        "None",
        "ServerHint(delay=5.0, source=<WaitSource.RETRY_AFTER: 'retry-after'>)",
    ]


def test_protobuf_in_python():
    """RT-3: errors of protobuf's pure-Python implementation do not reach the call either."""
    code = (
        "from google.protobuf.internal import api_implementation\n"
        "from grpc_backoff.decide.calls.server_hint import read_hint\n"
        "print(api_implementation.Type())\n"
        f"for value in ({INFO[1]!r}, b'\\x12\\x02\\xff\\xfe', b'\\xff' * 20, {INFO[1][:-1]!r}):\n"
        f"    word = read_hint([({DETAILS!r}, value)], [], lambda: 0.0)\n"
        "    print(word and word.delay)\n"
    )
    path = os.pathsep.join(filter(None, [str(Path(grpc_backoff.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    printed = output_of(code, PYTHONPATH=path, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")

    assert printed == ["python", "3.0", "None", "None", "None"]


def test_messages_come_late():
    """RT-3: protobuf is not imported before the first rich status, nor `email.utils` before the first date."""
    code = (
        "import sys, grpc.aio, grpc_backoff.aio\n"
        "from grpc_backoff.decide.calls.server_hint import read_hint\n"
        "def loaded(*_):\n"
        "    print(*[name in sys.modules for name in ('google.protobuf', 'google.rpc', 'email.utils')])\n"
        f"read_hint([{PUSHED!r}], [], lambda: 0.0)\n"
        f"loaded(read_hint([{AFTER!r}, ({DETAILS!r}, '')], [], lambda: 0.0))\n"
        f"loaded(read_hint([{INFO!r}], [], lambda: 0.0))\n"
        f"loaded(read_hint([({RETRY_AFTER!r}, 'Fri, 31 Jul 2026 12:01:30 GMT')], [], lambda: 0.0))\n"
    )
    assert output_of(code) == ["False False False", "True True False", "True True True"]


@pytest.mark.parametrize("source", [WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER])
@pytest.mark.parametrize(
    ("jitter", "cap", "asked", "least", "most"),
    [
        (0.0, None, 7.0, 7.0, 7.0),
        (5.0, None, 7.0, 7.0, 12.0),
        (5.0, 10.0, 7.0, 7.0, 10.0),
        (5.0, 60.0, 0.0, 0.0, 5.0),
        (5.0, 7.0, 7.0, 6.3, 7.0),
        (5.0, 3.0, 7.0, 2.7, 3.0),
        (5.0, None, 9.2e18, 9.2e18, 9.2e18 + 5.0),
        (0.0, 60.0, 9e9, 60.0, 60.0),
    ],
)
def test_window(source, jitter, cap, asked, least, most):
    """RT-3: jitter is added to a hint below `max_server_delay`; that of `steps` is subtracted from the cap otherwise.

    A pushback is honoured exactly, up to `max_server_delay`.
    """
    policy = replace(RETRY_PRESETS["steps"], server_delay_jitter=jitter, max_server_delay=cap)
    window = hint_window(policy, ServerHint(asked, source))
    if source is WaitSource.PUSHBACK:
        least = most = min(asked, cap or math.inf)

    assert (window.at(0.0), window.at(0.5), window.at(1.0)) == (
        pytest.approx(least),
        pytest.approx((least + most) / 2),
        most,
    )


@pytest.mark.parametrize("asked", [60.0, 61.0, 9e9])
@pytest.mark.parametrize(
    ("jitter", "least", "most"),
    [
        (Proportional(0.1, then_cap=True), 54.0, 60.0),
        *((each, 60.0, 65.0) for each in (NoJitter(), Full(), Equal(), Additive(0.5), Proportional(0.1))),
        *((each, 60.0, 65.0) for each in (Scaled(0.5, 1.5), Scaled(1.5, 2.0), Scaled(0.0, 1.0))),
    ],
)
def test_spread_at_the_cap(jitter, asked, least, most):
    """RT-3: at the cap, jitter comes on top, whatever the policy's own jitter; that of `steps` stays below it.

    No client comes back sooner than the server asked, or than the cap, to help a server that is overloaded.
    """
    policy = replace(RETRY_PRESETS["steps"], backoff=replace(RETRY_PRESETS["steps"].backoff, jitter=jitter))
    window = hint_window(policy, ServerHint(asked, WaitSource.RETRY_AFTER))

    assert (window.low, window.at(1.0)) == (pytest.approx(least), most)


def test_full_jitter_does_not_undercut_the_server():
    """RT-3: told 2 s at a limit of 2 s, with `jitter: full`, clients wait 2 s or longer, and not all the same."""
    policy = parse_policy("retry: 3, delay: 1s, jitter: full, max_server_delay: 2s")
    window = hint_window(policy, ServerHint(2.0, WaitSource.RETRY_AFTER))
    waits = {window.at(n / 40) for n in range(40)}

    assert len(waits) == 40
    assert (min(waits), max(waits) <= 2.0 + policy.server_delay_jitter) == (2.0, True)


@pytest.mark.parametrize(
    ("left", "least", "most"), [(None, 54.0, 60.0), (90.0, 54.0, 60.0), (56.0, 54.0, 56.0), (50.0, 54.0, 54.0)]
)
def test_window_before_a_deadline(left, least, most):
    """RT-3: jitter is limited to the time before the deadline, so it never makes a call give up."""
    window = hint_window(RETRY_PRESETS["steps"], ServerHint(60.0, WaitSource.RETRY_AFTER), left)

    assert (window.at(0.0), window.at(1.0)) == (pytest.approx(least), pytest.approx(most))


@unhurried
@given(
    policy=retry_policies,
    asked=st.floats(0, 1e19),
    source=st.sampled_from([WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER, WaitSource.PUSHBACK]),
    left=st.none() | st.floats(0, 1e19),
    seed=st.integers(),
)
def test_any_window(policy, asked, source, left, seed):
    """RT-3: a wait is never longer than the cap and jitter on top, nor shorter than a hint below it."""
    cap = policy.max_server_delay or math.inf
    window = hint_window(policy, ServerHint(asked, source), left)
    wait = window.at(random.Random(seed).random())

    assert 0 <= window.low <= wait <= cap + policy.server_delay_jitter
    assert asked >= cap or wait <= cap
    assert wait >= asked or asked >= cap
    assert wait <= max(window.low, asked + policy.server_delay_jitter)
