"""Which retry policy applies to each method, and which retries are left to grpcio's core."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff import aio
from grpc_backoff.config import options
from grpc_backoff.config.call_policies import REPLAY_LIMIT, CallPolicies, MethodConfig, ServiceConfig
from grpc_backoff.config.file import read_config
from grpc_backoff.config.methods import read_policy, read_retry
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.service_config import from_service_config
from grpc_backoff.errors import OptionError, PolicyWarning
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.presets import PRESETS, RETRY_PRESETS
from tests.config.native import NATIVE, taken_by_grpc
from tests.policy.values import unhurried
from tests.texts import exactly

KEY = "grpc.service_config"
ENABLE = "grpc.enable_retries"
BUFFER = "grpc.per_rpc_retry_buffer_size"

STANDARD = RETRY_PRESETS["standard"]
ONCE = replace(STANDARD, max_attempts=1)
ABORTED = replace(STANDARD, codes=frozenset({"ABORTED"}))
OF_NATIVE = from_service_config(NATIVE)
OTHER = {**NATIVE, "maxAttempts": 2, "retryableStatusCodes": ["ABORTED"]}
OF_OTHER = from_service_config(OTHER)
HEDGED = "hedge: 50ms, attempts: 3"
NATIVE_HEDGED = {"maxAttempts": 3, "hedgingDelay": "0.05s", "nonFatalStatusCodes": ["UNAVAILABLE"]}

WHAT = "a RetryPolicy, a policy name, or a policy string such as 'retry: 5, delay: 1s'"
LISTED = f"a policy string such as 'retry: 5, delay: 1s', or one of: {', '.join(PRESETS)}"
NAMES = "'package.Service/Method', 'package.Service' or '*'"
WORDS = "a policy string such as 'retry: 5, delay: 1s, backoff: linear'"
FILE = """
[policies.careful]
preset = "standard"
retry = 2
[policies.idle]
backoff = "linear"
retry = 2
[methods."*"]
preset = "careful"
[methods."shop.Orders"]
retry = 1
delay = "3s"
[methods."shop.Orders/Place"]
retry = 0
delay = "3s"
[retry_budget]
max_tokens = 10
token_ratio = 0.1
"""


@pytest.fixture
def config(tmp_path):
    return config_of(tmp_path, FILE)


def config_of(tmp_path, text):
    file = tmp_path / "backoff.toml"
    file.write_text(text)
    return read_config(file)


def text_of(*entries, **more):
    return json.dumps({"methodConfig": list(entries), **more})


def entry_of(*paths, **more):
    """Return a service-config entry for these methods (`a.B/C`), services (`a.B`) or everything (an empty string)."""
    names = [dict(zip(("service", "method"), path.split("/"), strict=False)) for path in paths]
    return {"name": [{key: value for key, value in name.items() if value} for name in names], **more}


def read_both(retry=None, budget=None, core=(), config=None):
    """Return a channel's policies for calls, and its options for grpcio without the idle timeout."""
    setup = options.read_options(core, config=config, retry=retry, retry_budget=budget)
    return setup.call_policies, setup.core_options[:-1]


def read(*given, **named):
    return read_both(*given, **named)[0]


# Which policy applies.


def test_nothing_asked_for():
    """RT-1: by default no method has a policy, and the options for the core are passed on unchanged."""
    policies, passed = read_both(core=[("grpc.x", 1)])

    assert (policies, passed) == (CallPolicies(), (("grpc.x", 1),))
    assert policies.of("/shop.Orders/Place") is None
    assert (policies.budget, policies.replay_limit, policies.stand_in()) == (None, REPLAY_LIMIT, False)


@pytest.mark.parametrize(
    ("retry", "policy"),
    [
        (STANDARD, STANDARD),
        *((name, RETRY_PRESETS[name]) for name in RETRY_PRESETS),
        ("retry: 5, delay: 1s", parse_policy("retry: 5, delay: 1s")),
        ("preset: standard, retry: 1", replace(STANDARD, max_attempts=2)),
        ("retry:0,delay:1s", parse_policy("retry: 0, delay: 1s")),
    ],
)
@pytest.mark.parametrize("method", ["/shop.Orders/Place", "shop.Orders/Place", "/x/y"])
def test_one_policy_for_all(retry, policy, method):
    """BP-2: a single policy, given as an object, a name or a policy string, applies to every method on the channel."""
    assert read(retry).of(method) == policy
    assert read({"*": retry}).of(method) == policy


@pytest.mark.parametrize("order", [1, -1])
def test_nearest_of_the_mapping(order):
    """BP-3: the most specific entry of a mapping applies, in any order: the method's, its service's, or `*`."""
    mapping = [("a.B/C", replace(STANDARD, max_attempts=2)), ("a.B", "retry: 2"), ("*", "max_attempts: 4")]
    attempts = {"/a.B/C": 2, "/a.B/D": 3, "/a.Bee/C": 4, "/a/B": 4, "/a.B": 3, "/a.b/C": 4, "/x.Y/C": 4}
    policies = read(dict(mapping[::order]))

    assert {method: policies.of(method).max_attempts for method in attempts} == attempts


def test_no_entry_for_it():
    """RT-1: a mapping has no effect on methods that it does not cover."""
    policies = read({"a.B": "standard", "c.D/E": "standard"})

    assert policies.of("/a.B/C") == STANDARD
    assert [policies.of(method) for method in ("/c.D/F", "/a.BB/C", "/a/B")] == [None] * 3
    assert read({}).of("/a.B/C") is None


def test_policies_of_the_file_by_name(config):
    """BP-3: a policy from the file can be named directly, and as the preset of a policy string."""
    careful = replace(STANDARD, max_attempts=3)

    assert read("careful", config=config).of("/a.B/C") == careful
    assert read({"a.B": "preset: careful, timeout: 2s"}, config=config).of("/a.B/C") == replace(careful, timeout=2.0)
    assert read_policy("retry", "careful", read(config=config).config) == careful
    assert read_policy("retry", ABORTED, read(config=config).config) is ABORTED
    assert read_policy("retry", "preset: careful, retry: 7", read(config=config).config).max_attempts == 8


@pytest.mark.parametrize(
    ("method", "attempts", "nominal"),
    [("/shop.Orders/Place", 1, 3.0), ("/shop.Orders/List", 2, 3.0), ("/shop.Carts/Add", 3, 1.0)],
)
def test_of_the_file(config, method, attempts, nominal):
    """BP-3: if neither the argument nor the service config covers a method, the file's most specific table applies."""
    policy = read(config=config).of(method)

    assert (policy.max_attempts, policy.nominal(1)) == (attempts, nominal)


# The number of attempts that each source sets for a method, if any.
PRECEDENCE = [
    # argument, service config, file: the expected number
    ({"*": 11}, {"a.B/C": 12}, {"a.B/C": 13}, 11),
    ({"a.B": 11}, {"a.B/C": 12}, {"a.B/C": 13}, 11),
    ({"a.B/C": 11}, {"*": 12}, {"*": 13}, 11),
    ({"x.Y": 11}, {"*": 12}, {"a.B/C": 13}, 12),
    ({}, {"a.B": 12}, {"a.B/C": 13}, 12),
    ({"x.Y": 11}, {"x.Y": 12}, {"a.B": 13}, 13),
    ({"x.Y": 11}, {"x.Y": 12}, {"x.Y": 13}, None),
    ({"x.Y": 11}, {}, {}, None),
]


@pytest.mark.parametrize(("argument", "native", "filed", "attempts"), PRECEDENCE)
def test_precedence(tmp_path, argument, native, filed, attempts):
    """BP-3: the argument overrides the service config, which overrides the file, even if its entry is less specific."""
    policies = read(
        {entry: replace(STANDARD, max_attempts=number) for entry, number in argument.items()},
        core=[
            (KEY, text_of(*(entry_of(*_paths(e), retryPolicy={**NATIVE, "maxAttempts": n}) for e, n in native.items())))
        ],
        config=config_of(tmp_path, "\n".join(f'[methods."{e}"]\nmax_attempts = {n}\n' for e, n in filed.items())),
    )
    policy = policies.of("/a.B/C")

    assert (policy and policy.max_attempts) == attempts


def _paths(entry):
    return [""] if entry == "*" else [entry]


# Errors.


@pytest.mark.parametrize(
    ("retry", "message"),
    [
        (5, f"retry=5: expected {WHAT}"),
        (["standard"], f"retry=['standard']: expected {WHAT}"),
        (RetryBudget(1, 1), f"retry=RetryBudget(max_tokens=1.0, token_ratio=1.0): expected {WHAT}"),
        ("", f"retry='': expected {WHAT}"),
        ("standrad", "retry='standrad': expected the name of a policy; did you mean 'standard'?"),
        ("xyz", f"retry='xyz': expected {LISTED}"),
        ("3", f"retry='3': expected {LISTED}"),
        ("retry: 5,", f"retry='retry: 5,': expected {WORDS}"),
        ("delay: 1s, dely: 2s", "unknown setting 'dely': did you mean 'delay'?"),
        ({"a.B/C": None}, f'retry."a.B/C"=None: expected {WHAT}'),
        ({"*": {}}, f'retry."*"={{}}: expected {WHAT}'),
        ({"a.B": "a, b: 5"}, "retry.\"a.B\"='a, b: 5': expected 'setting: value' in place of 'a'"),
        ({"/a.B/C": "standard"}, f"retry.\"/a.B/C\"='/a.B/C': expected {NAMES}"),
        ({"": "standard"}, f"retry.\"\"='': expected {NAMES}"),
        ({5: "standard"}, f'retry."5"=5: expected {NAMES}'),
        ({b"a.B": "standard"}, f"retry.\"b'a.B'\"=b'a.B': expected {NAMES}"),
    ],
    ids=repr,
)
def test_bad_retry(retry, message):
    """CH-10: the error for a bad `retry` contains the key, the value and the allowed values."""
    with pytest.raises(OptionError, match=exactly(message)):
        read(retry)


@pytest.mark.parametrize("budget", [5, True, {"max_tokens": 10}, "10", (10, 0.1), RetryBudget])
def test_bad_budget(budget):
    """CH-10: a `retry_budget` that is not a `RetryBudget` is rejected."""
    with pytest.raises(OptionError, match=exactly(f"retry_budget={budget!r}: expected a RetryBudget")):
        read(budget=budget)


def test_bad_name_for_one_call(config):
    """CH-10: a policy name given for one call is checked as well, and suggestions include the file's policies."""
    message = "retry='carefull': expected the name of a policy; did you mean 'careful'?"
    with pytest.raises(OptionError, match=exactly(message)):
        read_policy("retry", "carefull", read(config=config).config)


@unhurried
@given(retry=st.none() | st.text() | st.dictionaries(st.text() | st.integers(), st.text() | st.none()) | st.binary())
def test_policies_or_error(retry):
    """CH-10: any value of `retry` either produces policies or raises an `OptionError`."""
    try:
        assert read(retry).stand_in() in (True, False)
    except (OptionError, PolicyWarning):
        return


# Warnings.


@pytest.mark.parametrize(
    ("retry", "remark"),
    [
        ("retry: 5, backoff: linear", "backoff has no effect without a delay"),
        ("linear", "retry has no effect without a delay"),
        ("idle", "policies.idle.backoff has no effect without a delay"),
        ({"a.B": "linear"}, 'retry."a.B" has no effect without a delay'),
        ({"a.B": "retry: 5, max_delay: 4s"}, "max_delay has no effect without a delay"),
        ({"a.B": "standard", "c.D": "idle"}, "policies.idle.backoff has no effect without a delay"),
    ],
)
def test_no_effect(config, retry, remark):
    """BP-2: a setting without effect causes one warning, at the line that requested the policy."""
    with pytest.warns(PolicyWarning) as caught:
        read(retry, config=config)

    assert [str(warning.message) for warning in caught] == [remark]
    assert (caught[0].filename, caught[0].lineno) == (__file__, read_both.__code__.co_firstlineno + 2)


@pytest.mark.parametrize(
    "given",
    [{"retry": "retry: 5, backoff: linear"}, {"retry": "linear"}, {"retry": {"*": "linear"}}, {"config": "a"}],
)
async def test_warns_of_the_channel(tmp_path, monkeypatch, given):
    """BP-2: a warning about an argument or about the file points to the line that creates the channel."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text('[methods."*"]\nretry = 5\nbackoff = "linear"\n')
    with pytest.warns(PolicyWarning) as caught:
        channel = aio.insecure_channel("localhost:1", **given)
    await channel.close()

    assert (caught[0].filename, caught[0].lineno) == (__file__, test_warns_of_the_channel.__code__.co_firstlineno + 9)


@pytest.mark.parametrize("retry", ["retry: 5, backoff: linear", "linear"])
async def test_warns_of_the_call(retry):
    """BP-2: the warning points to the line that calls `retrying` for a method."""
    async with aio.insecure_channel("localhost:1") as channel:
        method = channel.unary_unary("/a.B/C")
        with pytest.warns(PolicyWarning) as caught:
            aio.retrying(method, retry)

    assert (caught[0].filename, caught[0].lineno) == (__file__, test_warns_of_the_call.__code__.co_firstlineno + 6)


# Budgets.


def test_budget(config):
    """RT-9: the argument's budget overrides the service config's, which overrides the file's.

    The service config's applies even without a retryPolicy, because the policies may come from another source.
    """
    budget, throttling = RetryBudget(20, 0.2), text_of(retryThrottling={"maxTokens": 30, "tokenRatio": 0.3})

    assert read(budget=budget, core=[(KEY, throttling)], config=config).budget == budget
    assert read(core=[(KEY, throttling)], config=config).budget == RetryBudget(30, 0.3)
    assert read(config=config).budget == RetryBudget(10, 0.1)
    assert read("standard").budget is None
    policies, passed = read_both("standard", core=[(KEY, throttling)])
    assert (policies.budget, left_of(passed)) == (RetryBudget(30, 0.3), throttling)


# The service config.


def retries_in(policies):
    """Return the retry policies that were read from the service config, by path."""
    return {path: config.retry for path, config in policies.service_config.methods.items()}


def left_of(core, key=KEY):
    return dict(core)[key]


FULL = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        entry_of("", timeout="2.5s", waitForReady=True),
        entry_of("a.B", retryPolicy=NATIVE, maxRequestMessageBytes=1024),
        entry_of("a.B/C", "d.E/F", retryPolicy=OTHER, timeout="1s"),
        entry_of("a.B/Ä\u2028", waitForReady=False),
    ],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5},
    "healthCheckConfig": {"serviceName": "ä"},
}


def stripped(content, *taken):
    """Return the content of a service config, without some settings of its methods."""
    left = [{key: value for key, value in entry.items() if key not in taken} for entry in content["methodConfig"]]
    return {**content, "methodConfig": left}


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("encoded", [True, False])
def test_taken_over(ascii_only, encoded):
    """RT-10, CH-8: the library takes retry policies and timeouts out of a service config; the core accepts the rest."""
    text = json.dumps(FULL, ensure_ascii=ascii_only)
    policies, passed = read_both(core=[("grpc.x", 1), (KEY, text.encode() if encoded else text), ("grpc.y", "z")])
    left = json.loads(left_of(passed))

    assert retries_in(policies) == {
        "": None,
        "/a.B/": OF_NATIVE,
        "/a.B/C": OF_OTHER,
        "/d.E/F": OF_OTHER,
        "/a.B/Ä\u2028": None,
    }
    assert "retryPolicy" not in left_of(passed)
    assert left == stripped(FULL, "retryPolicy", "timeout")
    assert [key for key, _ in passed] == ["grpc.x", KEY, "grpc.y"]
    assert taken_by_grpc(text)
    assert taken_by_grpc(left_of(passed))


def test_nearest_entry():
    """RT-10: as in grpc, only the most specific entry applies; if it has no retryPolicy, there are no retries."""
    expected = {"/a.B/C": OF_OTHER, "/a.B/D": OF_NATIVE, "/d.E/F": OF_OTHER}
    expected |= dict.fromkeys(["/d.E/G", "/x.Y/Z", "/a.B/Ä\u2028"])
    policies = read(core=[(KEY, json.dumps(FULL))])

    assert {method: policies.of(method) for method in expected} == expected


def test_an_entry_without_a_policy(config):
    """BP-3: if the most specific entry of the service config has no retryPolicy, the file applies."""
    text = text_of(entry_of("", waitForReady=True), entry_of("x.Y", retryPolicy=NATIVE), entry_of("x.Y/Pay"))
    policies = read(core=[(KEY, text)], config=config)

    assert policies.of("/shop.Orders/List").nominal(1) == 3.0
    assert policies.of("/x.Y/Look") == OF_NATIVE
    assert policies.of("/x.Y/Pay") == config.retry_policy("x.Y/Pay").policy


@pytest.mark.parametrize(
    "text",
    [
        text_of(entry_of("a.B", waitForReady=True)),
        " " + text_of(retryThrottling={"maxTokens": 1, "tokenRatio": 1}) + "\n",
        text_of(entry_of("a.B", retryPolicy=None)),
        text_of(),
        "{}",
        b"{}",
    ],
)
def test_nothing_to_take(text):
    """CH-9: a service config without retries and timeouts is passed to the core as exactly the same text."""
    policies, passed = read_both("standard", core=[(KEY, text)])

    assert left_of(passed) == text
    assert not any(retries_in(policies).values())
    assert taken_by_grpc(text)


def without(key):
    return {other: value for other, value in NATIVE.items() if other != key}


# Configs that grpc's core rejects. Their policies must stay where they are, because the core might accept the rest.
REFUSED = {
    "no JSON": "{",
    "one attempt": text_of(entry_of("", retryPolicy={**NATIVE, "maxAttempts": 1})),
    "no attempts": text_of(entry_of("", retryPolicy=without("maxAttempts"))),
    "no codes": text_of(entry_of("", retryPolicy={**NATIVE, "retryableStatusCodes": []})),
    "a list for a code": text_of(entry_of("", retryPolicy={**NATIVE, "retryableStatusCodes": [["ABORTED"]]})),
    "an object for a code": text_of(entry_of("", retryPolicy={**NATIVE, "retryableStatusCodes": [{}]})),
    "unknown code": text_of(entry_of("", retryPolicy={**NATIVE, "retryableStatusCodes": ["ABORTED", "NOPE"]})),
    "no first wait": text_of(entry_of("", retryPolicy={**NATIVE, "initialBackoff": "0s"})),
    "no longest wait": text_of(entry_of("", retryPolicy=without("maxBackoff"))),
    "no multiplier": text_of(entry_of("", retryPolicy=without("backoffMultiplier"))),
    "no growth": text_of(entry_of("", retryPolicy={**NATIVE, "backoffMultiplier": 0})),
    "milliseconds": text_of(entry_of("", retryPolicy={**NATIVE, "initialBackoff": "100ms"})),
    "a policy that is none": text_of(entry_of("", retryPolicy="standard")),
    "an empty policy": text_of(entry_of("", retryPolicy={})),
    "bad policy for nobody": text_of(entry_of(retryPolicy={**NATIVE, "maxAttempts": 1})),
    "bad beside good": text_of(entry_of("a.B", retryPolicy=NATIVE), entry_of("c.D", retryPolicy={"maxAttempts": 3})),
    "no tokens": text_of(entry_of("", retryPolicy=NATIVE), retryThrottling={"maxTokens": 0, "tokenRatio": 1}),
    "no ratio": text_of(entry_of("", retryPolicy=NATIVE), retryThrottling={"maxTokens": 1}),
    "throttling that is none": text_of(entry_of("", retryPolicy=NATIVE), retryThrottling=[]),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_refused(text):
    """RT-10: a config that grpc rejects is passed on unchanged, and none of its policies are used."""
    policies, passed = read_both(core=[(KEY, text)])

    assert not taken_by_grpc(text)
    assert left_of(passed) is text
    assert not any(retries_in(policies).values())
    assert policies.budget is None


STILL_REFUSED = {
    "one method twice": [entry_of("a.B/C", retryPolicy=NATIVE), entry_of("a.B/C", retryPolicy=OTHER)],
    "one method twice in one entry": [entry_of("a.B", "a.B", retryPolicy=NATIVE)],
    "all twice": [entry_of("", retryPolicy=NATIVE), entry_of("", timeout="1s")],
    "bad timeout": [entry_of("", retryPolicy=NATIVE, timeout="1m")],
    "a method without a service": [entry_of("", retryPolicy=NATIVE), {"name": [{"method": "C"}]}],
}


@pytest.mark.parametrize("entries", STILL_REFUSED.values(), ids=STILL_REFUSED)
def test_still_refused(entries):
    """RT-10: a config that grpc rejects for another reason is still rejected after its retry policies are taken out."""
    text = text_of(*entries)

    assert not taken_by_grpc(text)
    assert not taken_by_grpc(left_of(read_both(core=[(KEY, text)])[1]))


@pytest.mark.parametrize(
    "change", [{"maxAttempts": 3.0}, {"retryableStatusCodes": ["unavailable"]}, {"retryableStatusCodes": [14]}]
)
def test_more_than_the_core_takes(change):
    """RT-10: codes as numbers or in lower case, which gRFC A6 allows but C-core rejects, are accepted."""
    policies, passed = read_both(core=[(KEY, text_of(entry_of("", retryPolicy={**NATIVE, **change})))])

    assert policies.of("/a.B/C").codes == {"UNAVAILABLE"}
    assert taken_by_grpc(left_of(passed))


def test_multiplier_below_one():
    """RT-10: a multiplier below 1, which this library does not support, is left for the core to apply."""
    text = text_of(entry_of("", retryPolicy={**NATIVE, "backoffMultiplier": 0.5}))
    policies, passed = read_both(core=[(KEY, text)])

    assert taken_by_grpc(text)
    assert (left_of(passed), policies.of("/a.B/C")) == (text, None)


@pytest.mark.parametrize("off", [0, False])
@pytest.mark.parametrize("key", [ENABLE, ENABLE.encode()])
def test_retries_turned_off(off, key):
    """RT-10: with `grpc.enable_retries=0`, retry policies stay in the service config, and are not used."""
    core = ((KEY, json.dumps(FULL)), (key, off))
    policies, passed = read_both(core=core)

    assert not any(retries_in(policies).values())
    assert (policies.budget, passed[1:]) == (None, core[1:])
    assert json.loads(left_of(passed)) == stripped(FULL, "timeout")
    assert read("standard", core=core).of("/a.B/C") == STANDARD


def test_retries_turned_on():
    """RT-10: `grpc.enable_retries=1`, which is grpcio's default, has no effect."""
    assert read(core=[(ENABLE, 1), (KEY, json.dumps(FULL))]).of("/a.B/C") == OF_OTHER


def test_first_of_several():
    """CH-9: if the key occurs twice, the first wins, as in grpcio; the retry policies are removed from both."""
    first, second = text_of(entry_of("", retryPolicy=NATIVE)), text_of(entry_of("", retryPolicy=OTHER))
    policies, passed = read_both(core=[(KEY, first), (KEY, second), (ENABLE, 1), (ENABLE, 0)])

    assert policies.of("/a.B/C") == OF_NATIVE
    assert not any("retryPolicy" in str(value) for _, value in passed)


@pytest.mark.parametrize("pair", [tuple, list])
def test_keys_in_bytes(pair):
    """CH-9: as in grpcio, keys may be bytes and pairs may be lists; keys are passed on as they were given."""
    text = text_of(entry_of("", retryPolicy=OTHER))
    policies, passed = read_both(core=[pair((KEY.encode(), text)), pair((BUFFER.encode(), 5)), pair((b"\xff", 1))])

    assert policies.of("/a.B/C") == OF_OTHER
    assert policies.replay_limit == 5
    assert [tuple(entry) for entry in passed] == [
        (KEY.encode(), text_of(entry_of(""))),
        (BUFFER.encode(), 5),
        (b"\xff", 1),
    ]


@given(text=st.text() | st.binary() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_any_service_config(text):
    """RT-10: a text that is not a service config is passed on unchanged and causes no error."""
    assert left_of(read_both(core=[(KEY, text)])[1]) is text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 20) | st.text(max_size=5) | st.sampled_from(["1s", "ABORTED", "2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NATIVE, "x"]), inner, max_size=3),
    max_leaves=8,
)
retry_policies = st.fixed_dictionaries(
    {key: st.just(value) | json_values for key, value in NATIVE.items()}, optional={"hedging": json_values}
)


@unhurried
@given(entries=st.lists(st.fixed_dictionaries({"name": json_values, "retryPolicy": retry_policies | json_values})))
def test_whole_or_not_at_all(entries):
    """RT-10: either every retryPolicy is removed from the text, or the text is unchanged and none of them is used."""
    text = json.dumps({"methodConfig": entries})
    policies, passed = read_both(core=[(KEY, text)])

    assert left_of(passed) is text or "retryPolicy" not in left_of(passed)
    assert left_of(passed) is not text or not any(retries_in(policies).values())


# Whether the core's own retries can be turned off.


@pytest.mark.parametrize(
    ("retry", "stands_in"),
    [
        (STANDARD, True),
        ("standard", True),
        ("grpc", True),  # unlimited attempts
        ("contention", True),
        ("retry: 1, delay: 1s", True),
        ("retry: 0, delay: 1s", False),
        ("retry: 5, delay: 1s, codes: ABORTED", False),
        (ONCE, False),
        (ABORTED, False),
        (replace(STANDARD, max_attempts=None), True),
        ({}, False),
        ({"*": STANDARD}, True),
        ({"*": STANDARD, "a.B": replace(STANDARD, max_attempts=2)}, True),
        ({"*": STANDARD, "a.B/C": ONCE}, False),
        ({"*": STANDARD, "a.B/C": ABORTED}, False),
        ({"*": ONCE, "a.B/C": STANDARD}, False),
        ({"a.B": STANDARD, "a.B/C": STANDARD}, False),
        (None, False),
        # A hedging policy may leave methods without a policy unless it names a single one (HG-8).
        (HEDGED, False),
        ({"*": STANDARD, "a.B": HEDGED}, False),
        ({"*": STANDARD, "a.B/C": HEDGED}, True),
        ({"*": STANDARD, "a.B/C": f"{HEDGED}, non_fatal_codes: none"}, False),
    ],
)
def test_stand_in(retry, stands_in):
    """RT-10: the library stands in for the core's retries if every method has a policy that retries UNAVAILABLE."""
    policies, passed = read_both(retry)

    assert policies.stand_in() is stands_in
    assert passed == (((ENABLE, 0),) if stands_in else ())


@pytest.mark.parametrize(
    ("retry", "entries", "file", "stands_in"),
    [
        # The service config covers all methods, alone or together with an argument for some.
        (None, [entry_of("", retryPolicy=NATIVE)], "", True),
        (None, [entry_of("", retryPolicy=OTHER)], "", False),
        (None, [entry_of("a.B", retryPolicy=NATIVE)], "", False),
        ({"a.B": STANDARD}, [entry_of("", retryPolicy=NATIVE)], "", True),
        ({"a.B": ONCE}, [entry_of("", retryPolicy=NATIVE)], "", False),
        ("standard", [entry_of("a.B", retryPolicy=OTHER)], "", True),
        # The file covers all methods, or those that the other sources do not cover.
        (None, [], '[methods."*"]\npreset = "standard"', True),
        (None, [], '[methods."*"]\npreset = "standard"\nretry = 0', False),
        (None, [], '[methods."*"]\npreset = "standard"\n[methods."a.B"]\nretry = 0', False),
        (None, [], '[methods."a.B"]\npreset = "standard"', False),
        (None, [entry_of("a.B", retryPolicy=NATIVE)], '[methods."*"]\npreset = "standard"', True),
        (None, [entry_of("a.B", retryPolicy=OTHER)], '[methods."*"]\npreset = "standard"', False),
        ({"a.B": STANDARD}, [], '[methods."*"]\npreset = "standard"', True),
        ("standard", [], '[methods."*"]\nretry = 0', True),
        (None, [entry_of("", hedgingPolicy=NATIVE_HEDGED)], "", False),
        ("standard", [entry_of("a.B", hedgingPolicy=NATIVE_HEDGED)], "", True),
        (None, [entry_of("", retryPolicy=NATIVE), entry_of("a.B", hedgingPolicy=NATIVE_HEDGED)], "", False),
        # An entry without a retryPolicy leaves its methods to the file.
        (None, [entry_of("", timeout="1s")], '[methods."*"]\npreset = "standard"', True),
        (None, [entry_of("", timeout="1s")], "", False),
        (None, [entry_of("", retryPolicy=NATIVE), entry_of("a.B")], "", False),
        (None, [entry_of("", retryPolicy=NATIVE), entry_of("a.B")], '[methods."*"]\npreset = "standard"', True),
        (None, [entry_of("", retryPolicy=NATIVE), entry_of("a.B")], '[methods."*"]\nretry = 0', False),
        ("standard", [entry_of("", timeout="1s")], "", True),
    ],
)
def test_stand_in_with_all_sources(tmp_path, retry, entries, file, stands_in):
    """RT-10: the sources are checked in order of precedence, up to the first one that covers every method."""
    policies, passed = read_both(retry, core=[(KEY, text_of(*entries))], config=config_of(tmp_path, file))

    assert policies.stand_in() is stands_in
    assert ((ENABLE, 0) in passed) is stands_in


@pytest.mark.parametrize("said", [[], [(ENABLE, 1)], [(ENABLE, 0)]])
def test_core_retries_off(said):
    """RT-10: the option that turns off the core's retries is placed first, to override the application's own value."""
    _, passed = read_both("standard", core=[("grpc.x", 1), *said])

    assert passed == ((ENABLE, 0), ("grpc.x", 1), *said)


@given(
    argument=st.dictionaries(
        st.sampled_from(["*", "a.B", "a.B/C"]), st.sampled_from([STANDARD, ONCE, ABORTED, RETRY_PRESETS["grpc"]])
    ),
    native=st.dictionaries(
        st.sampled_from(["", "/a.B/", "/a.B/C", "/d.E/"]),
        st.sampled_from([None, OF_NATIVE, OF_OTHER]).map(lambda retry: MethodConfig(retry=retry)),
    ),
)
def test_stand_in_keeps_its_word(argument, native):
    """RT-10: if the library stands in for the core, every method has a policy that retries UNAVAILABLE."""
    policies = CallPolicies(argument=argument, service_config=ServiceConfig(native))
    methods = [policies.of(method) for method in ("/a.B/C", "/a.B/D", "/d.E/F", "/x.Y/Z")]
    all_retried = all(each and each.max_attempts != 1 and "UNAVAILABLE" in each.codes for each in methods)

    assert all_retried or not policies.stand_in()


# The replay buffer's limit.


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ([], 256 * 1024),
        ([(BUFFER, 1000)], 1000),
        ([(BUFFER, 0)], 0),
        ([(BUFFER, -1)], 0),
        ([(BUFFER, 2**31 - 1)], 2**31 - 1),
        ([(BUFFER, "1000")], 256 * 1024),
        ([(BUFFER, b"")], 256 * 1024),
        ([(BUFFER, 7), (BUFFER, 9)], 7),
    ],
)
def test_replay_limit(given, limit):
    """RT-8: `grpc.per_rpc_retry_buffer_size` sets the limit as in the core; a negative number means 0."""
    policies, passed = read_both(core=given)

    assert policies.replay_limit == limit
    assert passed == tuple(given)


def test_presets_are_all_tried():
    """BP-2: every preset that sets a delay can be used by name; using any other preset causes a warning."""
    assert set(RETRY_PRESETS) < set(PRESETS)
    for name in set(PRESETS) - set(RETRY_PRESETS):
        with pytest.warns(PolicyWarning):
            assert read_retry("retry", name, None).bounds(1) == (0.0, 0.0)


HERD = r"^a policy string without jitter: clients that fail together retry together"


@pytest.mark.parametrize("retry", ["retry: 5, delay: 1s", {"*": "retry: 5, delay: 1s, backoff: exponential"}])
def test_a_string_without_jitter(retry):
    """BP-2: a policy string whose waits after UNAVAILABLE have no jitter causes one warning, at the user's line."""
    with pytest.warns(PolicyWarning, match=HERD) as caught:
        read(retry)

    assert [warning.filename for warning in caught] == [__file__]


def test_a_parsed_string_without_jitter():
    """BP-2: `parse_policy` causes the same warning, and a channel with its policy none."""
    with pytest.warns(PolicyWarning, match=HERD) as caught:
        read(parse_policy("retry: 5, delay: 1s"))

    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    "retry",
    [
        "retry: 5, delay: 1s, jitter: none",
        "retry: 5, delay: 1s, jitter: full",
        "retry: 5, delay: 1s, backoff: decorrelated",
        "retry: 5, delay: 1s, codes: ABORTED",
        "preset: standard, retry: 2",
        "retry: 0, delay: 1s",
        "retry: 5",
        "standard",
        replace(RETRY_PRESETS["standard"], backoff=replace(RETRY_PRESETS["standard"].backoff, jitter=NoJitter())),
    ],
)
def test_nothing_about_jitter(retry):
    """BP-2: there is no such warning if jitter is set or not needed, or if the policy is not a string."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(retry)


@pytest.mark.parametrize("text", [" standard ", "retry: 5, delay: 1s, jitter: full"])
def test_a_text_is_the_same_everywhere(text):
    """BP-2: what `parse_policy` accepts, the argument `retry` accepts, with the same meaning."""
    assert read_retry("retry", text, None) == parse_policy(text)


@pytest.mark.parametrize("text", [" ", "standrd ", "standard, fixed", "retry 5, delay 1s", "retry=5", "retry: 5,"])
def test_a_wrong_text_is_the_same_everywhere(text):
    """BP-2: what `parse_policy` refuses, the argument `retry` refuses in the same words."""
    words = []
    for key, read in (("retry", lambda: read_retry("retry", text, None)), ("policy", lambda: parse_policy(text))):
        with pytest.raises(OptionError) as caught:
            read()
        words.append(str(caught.value).removeprefix(f"{key}="))
    assert words[0] == words[1]


@pytest.mark.parametrize("name", ["with, comma", "with: colon"])
def test_a_policy_of_the_file_with_any_name(tmp_path, name):
    """BP-3: a policy of the file can be named, whatever its name looks like."""
    config = config_of(tmp_path, f'[policies."{name}"]\nretry = 2\n')
    assert read(name, config=config).argument["*"].max_attempts == 3
