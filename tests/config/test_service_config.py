"""gRPC's service config: converting policies to and from it, and reading a channel's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.config.call_policies import MethodConfig
from grpc_backoff.config.service_config import (
    Conversion,
    from_service_config,
    method_configs,
    method_paths,
    read_json,
    read_service_config,
    read_throttling,
    to_service_config,
)
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.checks import STATUS_CODES, read_duration
from grpc_backoff.policy.hedging import HedgingPolicy
from grpc_backoff.policy.jitter import Full, NoJitter, Proportional
from grpc_backoff.policy.presets import RETRY_PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps
from tests.config.native import NATIVE, taken_by_grpc
from tests.policy.values import retry_policies, unhurried
from tests.texts import begins, exactly

POLICY = RetryPolicy(
    server_delay_jitter=0.0,
    backoff=BackoffPolicy(Exponential(0.1, 2.0), 1.0, Proportional(0.2)),
    max_attempts=4,
    codes=frozenset({"UNAVAILABLE"}),
)


def test_from():
    """BP-5: a retryPolicy becomes an exponential backoff with the jitter of gRPC's cores."""
    assert from_service_config(NATIVE) == POLICY


def test_to():
    """BP-5: a policy that gRPC supports converts to JSON without loss."""
    assert to_service_config(POLICY) == Conversion({**NATIVE, "backoffMultiplier": 2.0}, ())


@pytest.mark.parametrize(
    ("name", "first", "most", "multiplier", "misfits"),
    [
        ("grpc", "1s", "120s", 1.6, ["max_attempts", "server_delay_jitter"]),
        ("contention", "0.01s", "1s", 2.0, ["max_attempts", "max_exponent", "jitter", "deadline"]),
        ("steps", "1s", "60s", 1.0, ["max_attempts", "backoff", "jitter", "max_server_delay", "server_delay_jitter"]),
        ("standard", "1s", "30s", 2.0, ["jitter", "server_delay_jitter"]),
    ],
)
def test_presets(name, first, most, multiplier, misfits):
    """BP-5: each preset converts to the closest retryPolicy; each loss is described in one sentence."""
    conversion = to_service_config(RETRY_PRESETS[name])

    assert conversion.retry_policy == {
        "maxAttempts": 5,
        "initialBackoff": first,
        "maxBackoff": most,
        "backoffMultiplier": multiplier,
        "retryableStatusCodes": sorted(RETRY_PRESETS[name].codes),
    }
    assert [misfit.partition(" = ")[0] for misfit in conversion.misfits] == misfits


GROWTH = "backoff = {}: gRPC supports only exponential; the first wait is kept, without growth"
JITTER = "jitter = {}: gRPC always uses proportional(0.2)"
NO_SETTING = "{} s: a retryPolicy has no such setting"
TOO_SHORT = "delay = {} s: gRPC does not support waits below 0.001 s"


def waits(strategy, cap=1.0, jitter=POLICY.backoff.jitter):
    return {"backoff": BackoffPolicy(strategy, cap, jitter)}


# A change of the policy, and how gRPC's differs from it then.
MISFITS = [
    ({"max_attempts": 6}, "max_attempts = 6: gRPC makes at most 5 attempts"),
    ({"max_attempts": None}, "max_attempts = unlimited: gRPC makes at most 5 attempts"),
    (waits(Linear(0.1)), GROWTH.format("linear")),
    (waits(Steps((0.1, 0.3), 2.0)), GROWTH.format("steps")),
    (waits(Exponential(0.1, 2.0, 3)), "max_exponent = 3: gRPC limits growth only by max_delay"),
    (waits(Exponential(0.1, 2.0, 0)), "max_exponent = 0: gRPC limits growth only by max_delay"),
    (waits(Exponential(0.1, 2.0), jitter=NoJitter()), JITTER.format("none")),
    (
        waits(Exponential(0.1, 2.0), jitter=Proportional(0.2, then_cap=True)),
        JITTER.format("proportional(0.2, then_cap)"),
    ),
    (waits(Exponential(0.1, 2.0), jitter=Full()), JITTER.format("full")),
    (waits(Fixed(0.0)), TOO_SHORT.format("0")),
    (waits(Exponential(0.0009, 2.0)), TOO_SHORT.format("0.0009")),
    (
        waits(Exponential(0.1, 2.0), cap=1e12),
        "max_delay = 1e+12 s: gRPC does not support times above 315576000000 s",
    ),
    ({"timeout": 2.5}, NO_SETTING.format("timeout = 2.5")),
    ({"deadline": 30.0}, NO_SETTING.format("deadline = 30")),
    ({"max_server_delay": 60.0}, NO_SETTING.format("max_server_delay = 60")),
    (
        {"never_ran_only": True},
        "never_ran_only = true: gRPC retries by the code alone, also what a server may have executed",
    ),
    ({"server_delay_jitter": 5.0}, "server_delay_jitter = 5 s: gRPC waits exactly as long as the server asks"),
]


@pytest.mark.parametrize(("change", "misfit"), MISFITS, ids=[misfit for _, misfit in MISFITS])
def test_misfit(change, misfit):
    """BP-5: each part of a policy that does not fit is reported, and only those parts."""
    conversion = to_service_config(replace(POLICY, **change))

    assert conversion.misfits == (misfit,)
    assert from_service_config(conversion.retry_policy).codes == POLICY.codes


def test_two_misfits_of_decorrelated():
    """BP-5: for decorrelated backoff, both its growth and its jitter are reported."""
    conversion = to_service_config(replace(POLICY, **waits(Decorrelated(0.1), jitter=NoJitter())))

    assert conversion.misfits == (GROWTH.format("decorrelated"), JITTER.format("none"))
    assert conversion.retry_policy["initialBackoff"] == "0.2s"


@pytest.mark.parametrize(
    ("strategy", "cap", "same"),
    [
        (Fixed(0.25), 1.0, Exponential(0.25, 1.0)),
        *((Exponential(0.001, 2.0), cap, Exponential(0.001, 2.0)) for cap in (0.001, 315576000000.0)),
    ],
)
def test_fits(strategy, cap, same):
    """BP-5: waits from one millisecond to 10,000 years fit; a fixed backoff becomes exponential without growth."""
    conversion = to_service_config(replace(POLICY, **waits(strategy, cap)))

    assert conversion.misfits == ()
    assert from_service_config(conversion.retry_policy) == replace(POLICY, **waits(same, cap))


@pytest.mark.parametrize("name", ["grpc", "contention"])
def test_no_retries(name):
    """BP-5: a policy with a single attempt converts to no retryPolicy, because gRPC would reject one."""
    assert to_service_config(replace(RETRY_PRESETS[name], max_attempts=1)).retry_policy is None


@unhurried
@given(policy=retry_policies)
def test_fits_or_is_said(policy):
    """BP-5: every policy converts to a valid retryPolicy; if every part fits, it converts back to the same waits."""
    conversion = to_service_config(policy)
    if conversion.retry_policy is None:
        assert policy.max_attempts == 1
        return
    assert json.loads(json.dumps(conversion.retry_policy)) == conversion.retry_policy
    back = from_service_config(conversion.retry_policy)
    if not conversion.misfits:
        assert back.max_attempts == policy.max_attempts
        for n in (1, 2, 3, 4):  # the first wait loses up to a nanosecond, and the error grows
            assert back.bounds(n) == pytest.approx(policy.bounds(n), rel=1e-6)
    assert back.codes == policy.codes


@unhurried
@given(
    attempts=st.integers(2, 5),
    initial=st.integers(1000, 10**9),
    most=st.integers(1000, 10**12),
    multiplier=st.floats(1, 100),
    codes=st.sets(st.sampled_from(STATUS_CODES), min_size=1),
)
def test_round_trip(attempts, initial, most, multiplier, codes):
    """BP-5: a policy that gRPC supports survives the round trip; times are exact to the microsecond."""
    policy = RetryPolicy(
        backoff=BackoffPolicy(Exponential(initial / 1e6, multiplier), most / 1e6, Proportional(0.2)),
        max_attempts=attempts,
        codes=frozenset(codes),
        server_delay_jitter=0.0,
    )
    conversion = to_service_config(policy)
    back = from_service_config(conversion.retry_policy)

    assert conversion.misfits == ()
    assert back == policy if initial <= most else back.bounds(3) == policy.bounds(3)
    assert to_service_config(back) == conversion


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"maxAttempts": 2}, {"max_attempts": 2}),
        ({"maxAttempts": 3.0}, {"max_attempts": 3}),
        ({"maxAttempts": 9}, {"max_attempts": 9}),
        ({"retryableStatusCodes": [14]}, {"codes": frozenset({"UNAVAILABLE"})}),
        ({"retryableStatusCodes": ["unavailable"]}, {"codes": frozenset({"UNAVAILABLE"})}),
        (
            {"retryableStatusCodes": [1, 16, "ABORTED"]},
            {"codes": frozenset({"CANCELLED", "UNAUTHENTICATED", "ABORTED"})},
        ),
        ({"perAttemptRecvTimeout": "1s"}, {}),
    ],
)
def test_spellings(change, expected):
    """BP-5: codes may be numbers or in any case, and whole numbers may be written as 3.0."""
    assert from_service_config({**NATIVE, **change}) == replace(POLICY, **expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("maxAttempts", value) for value in (None, 1, 2.5, float("inf"), float("nan"), "4", True)),
        *(("initialBackoff", value) for value in (None, "0s", "-1s", "100ms", 0.1)),
        *(("maxBackoff", value) for value in (None, "0.0s", "1.s")),
        *(("backoffMultiplier", value) for value in (None, 0, "2")),
        *(("retryableStatusCodes", value) for value in (None, "UNAVAILABLE", [])),
    ],
)
def test_bad(key, value):
    """BP-5: a missing or wrong value is rejected with its key."""
    with pytest.raises(OptionError, match=begins(f"retryPolicy.{key}={value!r}: expected ")):
        from_service_config({**NATIVE, key: value})


@pytest.mark.parametrize("code", ["OK", 0, 17, -1, True, None, "NOPE", 14.0, ["ABORTED"], {}])
def test_bad_code(code):
    """BP-5: every code in the list is checked."""
    with pytest.raises(OptionError, match=r"^retryPolicy\.retryableStatusCodes=.*: expected 'CANCELLED', "):
        from_service_config({**NATIVE, "retryableStatusCodes": ["ABORTED", code]})


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_no_object(value):
    """BP-5: a value that is not a JSON object is rejected."""
    with pytest.raises(OptionError, match=exactly(f"retryPolicy={value!r}: expected an object")):
        from_service_config(value)


def accepted_by_grpc(retry_policy):
    """Return whether grpc accepts a retryPolicy."""
    return taken_by_grpc(json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry_policy}]}))


TAKEN = [policy for policy in map(to_service_config, RETRY_PRESETS.values()) if policy.retry_policy]


@pytest.mark.parametrize(
    "conversion", [*TAKEN, *(to_service_config(replace(POLICY, **change)) for change, _ in MISFITS)]
)
def test_grpc_takes_it(conversion):
    """BP-5: grpc accepts the converted policies."""
    assert accepted_by_grpc({**conversion.retry_policy, "retryableStatusCodes": ["ABORTED"]})


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        ([{"service": "a.B", "method": "C"}], ["/a.B/C"]),
        ([{"service": "a.B"}], ["/a.B/"]),
        ([{"service": "a.B", "method": ""}], ["/a.B/"]),
        ([{}], [""]),
        ([{"service": ""}], [""]),
        ([{"method": "C"}], []),
        ([{"service": "a.B"}, {}, 5, None], ["/a.B/", ""]),
        ([], []),
        (None, []),
        ("a.B", []),
    ],
)
def test_method_paths(names, paths):
    """BP-5: an entry applies to methods, whole services or all; invalid names are skipped, as in grpc."""
    assert list(method_paths({"name": names})) == paths


@pytest.mark.parametrize(
    ("throttling", "budget"),
    [
        ({"maxTokens": 10, "tokenRatio": 0.1}, RetryBudget(10, 0.1)),
        ({"maxTokens": 1000, "tokenRatio": 1}, RetryBudget(1000, 1)),
        ({"maxTokens": 1, "tokenRatio": 0.0015, "else": 1}, RetryBudget(1, 0.0015)),
    ],
)
def test_throttling(throttling, budget):
    """RT-9: `retryThrottling` becomes a retry budget, and grpc accepts it too."""
    assert read_throttling({"retryThrottling": throttling}) == budget
    assert taken_by_grpc(json.dumps({"retryThrottling": throttling}))


@pytest.mark.parametrize("config", [{}, {"retryThrottling": None}, {"methodConfig": []}])
def test_no_throttling(config):
    """RT-9: if `retryThrottling` is missing or null, there is no budget, as in grpc."""
    assert read_throttling(config) is None
    assert taken_by_grpc(json.dumps(config))


@pytest.mark.parametrize(
    ("throttling", "message"),
    [
        ({}, "retryThrottling.maxTokens=None"),
        ({"maxTokens": 10}, "retryThrottling.tokenRatio=None"),
        ({"tokenRatio": 1}, "retryThrottling.maxTokens=None"),
        ({"maxTokens": 0, "tokenRatio": 1}, "retryThrottling.maxTokens=0"),
        ({"maxTokens": -1, "tokenRatio": 1}, "retryThrottling.maxTokens=-1"),
        ({"maxTokens": 10, "tokenRatio": 0}, "retryThrottling.tokenRatio=0"),
        ({"maxTokens": 10, "tokenRatio": -0.5}, "retryThrottling.tokenRatio=-0.5"),
        ({"maxTokens": 10, "tokenRatio": 0.0005}, "retryThrottling.tokenRatio=0.0005"),
        ({"maxTokens": True, "tokenRatio": 1}, "retryThrottling.maxTokens=True"),
        ([], "retryThrottling=[]"),
        ("10", "retryThrottling='10'"),
        (False, "retryThrottling=False"),
    ],
)
def test_bad_throttling(throttling, message):
    """RT-9: the values that grpc rejects, including missing ones, are rejected here as well."""
    assert not taken_by_grpc(json.dumps({"retryThrottling": throttling}))
    with pytest.raises(OptionError, match=begins(f"{message}: expected ")):
        read_throttling({"retryThrottling": throttling})


def test_too_many_tokens():
    """RT-9: `maxTokens` is at most 1000, as in gRFC A6, although C-core has no such limit."""
    with pytest.raises(OptionError, match=r"^retryThrottling\.maxTokens=1001: expected "):
        read_throttling({"retryThrottling": {"maxTokens": 1001, "tokenRatio": 1}})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"a": [1, 2.5, "x", null, true]}', {"a": [1, 2.5, "x", None, True]}),
        (b' {"a": "\xc3\xa4"}\n', {"a": "ä"}),
        ("5", 5),
        ("[]", []),
        ('{"a": {"b": 1}, "b": 1}', {"a": {"b": 1}, "b": 1}),
    ],
)
def test_json(text, read):
    """CH-8: a service config is JSON, as text or as UTF-8 bytes."""
    assert read_json(text) == read


NO_JSON = [
    *("", "{", "{'a': 1}", '{"a": 1}//', '{"a": NaN}', '{"a": [Infinity]}', "-Infinity", "\ufeff{}", "[" * 100_000),
    *('{"methodConfig": [], "methodConfig": []}', '[{"a": {"b": 1, "c": 2, "b": 1}}]'),
    *(b"\xff", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), "{}".encode("utf-32")),
]


@pytest.mark.parametrize("text", NO_JSON, ids=lambda text: ascii(text)[:30])
def test_no_json(text):
    """CH-8: JSON that grpc's core rejects is rejected here: duplicate keys, NaN, and encodings other than UTF-8."""
    assert read_json(text) is None
    assert not taken_by_grpc(text)


@pytest.mark.parametrize("text", [None, 5, {}, [], "9" * 5000], ids=lambda text: ascii(text)[:30])
def test_no_text(text):
    """CH-8: a value that is not text is ignored, and so is text with a number too long for Python to parse."""
    assert read_json(text) is None


@given(text=st.text() | st.binary() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_json_or_nothing(text):
    """CH-8: reading JSON never raises an exception, even for arbitrary text."""
    read_json(text)


@pytest.mark.parametrize(
    ("config", "entries"),
    [
        ({"methodConfig": [{"name": []}, {"timeout": "1s"}]}, [{"name": []}, {"timeout": "1s"}]),
        ({"methodConfig": [5, None, [], "x", {}]}, [{}]),
        *((config, []) for config in ({"methodConfig": {}}, {"methodConfig": None}, {}, [], None, "x")),
    ],
)
def test_method_configs(config, entries):
    """CH-8: only the entries of `methodConfig` that are objects are returned."""
    assert method_configs(config) == entries


# Reading a channel's service config.

UNARY = "/echo.v1.Echo/Unary"


def options(*method_configs, **more):
    return (("grpc.service_config", json.dumps({"methodConfig": list(method_configs), **more})),)


def read_options(given):
    values = dict(reversed(given))
    return read_service_config(given, values, read_json(values["grpc.service_config"]))


def read(given):
    return read_options(given)[0]


def test_nearest_wins():
    """CH-8: a method's own entry applies, else its service's, else the one for all methods; entries are not merged."""
    config = read(
        options(
            {"name": [{}], "waitForReady": True},
            {"name": [{"service": "a.B"}], "timeout": "2s"},
            {"name": [{"service": "a.B", "method": "C"}, {"service": "d.E"}], "waitForReady": False, "timeout": "1.5s"},
        )
    )
    assert config.of("/a.B/C") == MethodConfig(wait_for_ready=False, timeout=1.5)
    assert config.of("/a.B/D") == MethodConfig(timeout=2.0)
    assert config.of("/d.E/X") == MethodConfig(wait_for_ready=False, timeout=1.5)
    assert config.of("/other/C") == MethodConfig(wait_for_ready=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0.0), ("1s", 1.0), ("1.5s", 1.5), ("3.500s", 3.5), ("0.000000001s", 1e-9), ("315576000000s", 315576e6)]
    + [(text, None) for text in ("1", "s", "", ".5s", "1.s", "1ms", "-1s", "1e3s", " 1s", "1s\n", "1.0000000001s")]
    + [(value, None) for value in (1, True, None, ["1s"])],
)
def test_durations(text, seconds):
    """BP-5: a protobuf Duration in JSON, not negative; any other value is none."""
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("1.5s", 1.5), ("0.001s", 0.001), ("1000000000s", 1e9)]
    + [(text, None) for text in ("0s", "0.000999999s", "1000000001s", "315576000000s", "-1s", "1ms", 1, None)],
)
def test_timeout(text, seconds):
    """CH-8: a `timeout` that grpc's core rejects, or takes for no limit, is left to it."""
    given = options({"name": [{}], "timeout": text})
    assert read(given).of(UNARY).timeout == seconds
    _, left = read_options(given)
    assert left == (given if seconds is None else options({"name": [{}]}))


@pytest.mark.parametrize(
    "value",
    [
        *(None, 5, "", "{", "[]", "null", b"\xff", '"x"', "[" * 100_000),
        '{"methodConfig": 5}',
        '{"methodConfig": [5, null, {}]}',
        '{"methodConfig": [{"name": 5}, {"name": [5, {"method": "M"}], "waitForReady": 1}]}',
    ],
    ids=range(12),
)
def test_rubbish(value):
    """CH-8: a config that cannot be read is ignored; the core rejects it when it connects."""
    assert read([("grpc.service_config", value)]).of(UNARY) == MethodConfig()


def test_one_value():
    """CH-8, RT-9, RT-10: a service config sets a method's `waitForReady`, timeout and retries, and a single budget."""
    entry = {"name": [{"service": "a.B"}], "waitForReady": True, "timeout": "2s", "retryPolicy": NATIVE}
    config = read(options(entry, retryThrottling={"maxTokens": 10, "tokenRatio": 0.1}))

    assert config.of("/a.B/C") == MethodConfig(wait_for_ready=True, timeout=2.0, retry=POLICY)
    assert config.of("/d.E/F") == MethodConfig()
    assert config.budget == RetryBudget(10, 0.1)


@pytest.mark.parametrize("more", [(), (("grpc.enable_retries", 0),)])
def test_what_is_not_taken_over(more):
    """RT-10: the config's other settings apply even if its retries are left to the core, or would not take place."""
    retry = NATIVE if more else {**NATIVE, "maxAttempts": 1}
    given = options({"name": [{}], "waitForReady": True, "timeout": "2s", "retryPolicy": retry}) + more
    config, left = read_options(given)

    assert config.of(UNARY) == MethodConfig(wait_for_ready=True, timeout=2.0)
    assert left == options({"name": [{}], "waitForReady": True, "retryPolicy": retry}) + more


def test_paths_are_paths():
    """CH-8: an entry for a service called `*` does not apply to all services."""
    assert read(options({"name": [{"service": "*"}], "timeout": "1s"})).of(UNARY) == MethodConfig()


def hedging(policy, **entry):
    entries = [{"name": [{}], "hedgingPolicy": policy, **entry}]
    config = json.dumps({"methodConfig": entries})
    return read_options((("grpc.service_config", config),))


def test_hedging():
    """HG-9: a `hedgingPolicy` is read, and not left to the core; an absent list of codes is empty."""
    config, left = hedging({"maxAttempts": 3, "hedgingDelay": "0.05s"})
    expected = HedgingPolicy(hedging_delay=0.05, max_attempts=3, non_fatal_codes=frozenset())
    assert config.of("/a.B/C").retry == expected
    assert "hedgingPolicy" not in left[0][1]
    config, _ = hedging({"maxAttempts": 9, "nonFatalStatusCodes": ["UNAVAILABLE", 10]})
    assert config.of("/a.B/C").retry == HedgingPolicy(
        hedging_delay=0, max_attempts=5, non_fatal_codes=frozenset({"UNAVAILABLE", "ABORTED"})
    )


@pytest.mark.parametrize(
    ("policy", "entry", "problem"),
    [
        ({"maxAttempts": 1}, {}, r"hedgingPolicy\.maxAttempts=1"),
        ({"maxAttempts": 2, "hedgingDelay": 5}, {}, r"hedgingPolicy\.hedgingDelay=5"),
        ({"maxAttempts": 2, "nonFatalStatusCodes": ["NO_CODE"]}, {}, r"hedgingPolicy\.nonFatalStatusCodes"),
        ([], {}, r"hedgingPolicy=\[\]: expected an object"),
        ({"maxAttempts": 2}, {"retryPolicy": NATIVE}, "either retried or hedged"),
    ],
)
def test_invalid_hedging(policy, entry, problem):
    """HG-9: the core ignores a `hedgingPolicy`, so its mistakes are reported here."""
    with pytest.raises(OptionError, match=problem):
        hedging(policy, **entry)
