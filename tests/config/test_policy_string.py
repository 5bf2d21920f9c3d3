"""Policies written as one line of text."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.config.file import read_config
from grpc_backoff.config.methods import read_retry
from grpc_backoff.config.policy_string import parse_policy, read_string
from grpc_backoff.config.resolving import resolve_retry
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.errors import OptionError, PolicyWarning
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled
from grpc_backoff.policy.presets import PRESETS, RETRY_PRESETS
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps
from tests.policy.values import unhurried
from tests.texts import exactly

# Most strings here do not give a number of retries, which causes this warning.
pytestmark = pytest.mark.filterwarnings("ignore:.* without retry or max_attempts:grpc_backoff.errors.PolicyWarning")

TIME = 'a finite number of seconds above 0, or a string such as "500ms", "1s" or "2m"'
SAME = "set the same value: give only one of them"
STRATEGIES = "'fixed', 'linear', 'exponential', 'steps' or 'decorrelated'"
WORDS = "a policy string such as 'retry: 5, delay: 1s, backoff: linear'"

BACKOFFS = [
    ("delay: 1s", BackoffPolicy(Fixed(1.0), 30.0, NoJitter())),
    ("delay: 1s, backoff: fixed", BackoffPolicy(Fixed(1.0), 30.0, NoJitter())),
    ("delay: 1s, backoff: linear", BackoffPolicy(Linear(1.0), 30.0, NoJitter())),
    ("delay: 500ms, backoff: exponential", BackoffPolicy(Exponential(0.5, 2.0), 30.0, NoJitter())),
    (
        "delay: 1s, backoff: exponential, multiplier: 1.5, max_exponent: 4",
        BackoffPolicy(Exponential(1.0, 1.5, 4), 30.0, NoJitter()),
    ),
    ("delay: 1s, backoff: decorrelated", BackoffPolicy(Decorrelated(1.0), 30.0, NoJitter())),
    ("delay: 1s, backoff: decorrelated, jitter: none", BackoffPolicy(Decorrelated(1.0), 30.0, NoJitter())),
    ("backoff: steps, steps: 1s 500ms 2", BackoffPolicy(Steps((1.0, 0.5, 2.0), 2.0), 30.0, NoJitter())),
    ("backoff: steps, steps: 1s, multiplier: 1", BackoffPolicy(Steps((1.0,), 1.0), 30.0, NoJitter())),
    ("delay: 1s, max_delay: 2m", BackoffPolicy(Fixed(1.0), 120.0, NoJitter())),
    ("delay: 1m", BackoffPolicy(Fixed(60.0), 60.0, NoJitter())),
    ("delay: 1s, jitter: full", BackoffPolicy(Fixed(1.0), 30.0, Full())),
    ("delay: 1s, jitter: equal", BackoffPolicy(Fixed(1.0), 30.0, Equal())),
    ("delay: 1s, jitter: 0.2", BackoffPolicy(Fixed(1.0), 30.0, Proportional(0.2))),
    ("delay: 1s, jitter: additive(0.5)", BackoffPolicy(Fixed(1.0), 30.0, Additive(0.5))),
    ("delay: 1s, jitter: scaled(0.5, 1.5), retry: 2", BackoffPolicy(Fixed(1.0), 30.0, Scaled(0.5, 1.5))),
    (
        "jitter: proportional(0.1, then_cap), delay: 1s",
        BackoffPolicy(Fixed(1.0), 30.0, Proportional(0.1, then_cap=True)),
    ),
    ("preset: linear, delay: 1s", BackoffPolicy(Linear(1.0), 30.0, NoJitter())),
    ("preset: steps", RETRY_PRESETS["steps"].backoff),
    ("preset: contention, delay: 20ms", BackoffPolicy(Exponential(0.02, 2.0, 6), 1.0, Additive(0.5))),
    ("preset: standard, jitter: none", BackoffPolicy(Exponential(1.0, 2.0), 30.0, NoJitter())),
    ("preset: grpc, backoff: fixed", BackoffPolicy(Fixed(1.0), 120.0, Proportional(0.2))),
]

LIMITS = [
    # Settings other than backoff, each combined with "delay: 1s".
    ("retry: 5", {"max_attempts": 6}),
    ("retry: 0", {"max_attempts": 1}),
    ("max_attempts: 5", {"max_attempts": 5}),
    ("max_attempts: unlimited", {"max_attempts": None}),
    ("timeout: 5s", {"timeout": 5.0}),
    ("deadline: 1h", {"deadline": 3600.0}),
    ("codes: ABORTED", {"codes": frozenset({"ABORTED"})}),
    ("codes: UNAVAILABLE ABORTED", {"codes": frozenset({"UNAVAILABLE", "ABORTED"})}),
    ("codes: UNAVAILABLE, aborted, timeout: 5s", {"codes": frozenset({"UNAVAILABLE", "ABORTED"}), "timeout": 5.0}),
    ("server_delay_jitter: 0", {"server_delay_jitter": 0.0}),
    ("server_delay_jitter: 250ms", {"server_delay_jitter": 0.25}),
    ("max_server_delay: 1.5m", {"max_server_delay": 90.0}),
    ("codes: UNAVAILABLE, never_ran_only: true", {"codes": frozenset({"UNAVAILABLE"}), "never_ran_only": True}),
    ("timeout: 5s, deadline: 20, retry: 2", {"timeout": 5.0, "deadline": 20.0, "max_attempts": 3}),
]

LISTED = "a policy string such as 'retry: 5, delay: 1s', or one of: " + ", ".join(PRESETS)
ONE_SECOND = parse_policy("delay: 1s, retry: 0")


@pytest.mark.parametrize(("text", "backoff"), BACKOFFS, ids=[text for text, _ in BACKOFFS])
def test_backoff(text, backoff):
    """BP-2: every backoff setting is parsed, with each strategy that supports it."""
    assert parse_policy(text).backoff == backoff


@pytest.mark.parametrize(("text", "limits"), LIMITS, ids=[text for text, _ in LIMITS])
def test_limits(text, limits):
    """BP-2: all other settings are parsed; `retry` counts the attempts after the first."""
    assert parse_policy(f"delay: 1s, {text}") == replace(ONE_SECOND, **limits)


@pytest.mark.parametrize("given", [3, None, b"standard", ["standard"]])
def test_no_text(given):
    """CH-10: what is no text is refused by name, as the argument `retry` of a channel refuses it."""
    with pytest.raises(OptionError, match=r"policy=.*: expected a policy name, or a policy string such as"):
        parse_policy(given)


@pytest.mark.parametrize("key", [setting.name for setting in RETRYING])
def test_every_word_is_tried(key):
    """BP-2: `BACKOFFS` and `LIMITS` cover every setting that a policy string can have."""
    assert any(f"{key}: " in text for text, _ in BACKOFFS + LIMITS)


@pytest.mark.parametrize(
    "spelt", ["retry:5,delay:1s", "  retry : 5 ,\tdelay :1s ", "delay: 1s,\n retry: 5", "retry: +5, delay: 1s"]
)
def test_spaces(spelt):
    """BP-2: spaces and order do not matter."""
    assert parse_policy(spelt) == parse_policy("retry: 5, delay: 1s")


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("retry: 3, backoff: exponential", ["backoff"]),
        ("backoff: fixed", ["backoff"]),
        ("retry: 3, jitter: full", ["jitter"]),
        ("retry: 3, max_delay: 3s, backoff: linear", ["max_delay", "backoff"]),
        ("multiplier: 3, backoff: exponential", ["multiplier", "backoff"]),
        ("preset: linear, retry: 3", ["preset"]),
        ("preset: exponential, max_exponent: 2", ["preset", "max_exponent"]),
    ],
)
def test_no_delay(text, remarks):
    """BP-2: without a delay, each setting that would modify it causes a warning, and retries follow at once."""
    with pytest.warns(PolicyWarning) as caught:
        policy = parse_policy(text)

    assert [str(warning.message) for warning in caught] == [f"{word} has no effect without a delay" for word in remarks]
    assert [policy.bounds(n) for n in (1, 5)] == [(0.0, 0.0)] * 2


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("", "policy", f"policy='': expected {WORDS}"),
        ("retry: 5,", "policy", f"policy='retry: 5,': expected {WORDS}"),
        ("retry: ", "policy", "policy='retry: ': expected 'setting: value' in place of 'retry:'"),
        ("retry: 5, jitter", "policy", "policy='retry: 5, jitter': expected 'setting: value' in place of 'jitter'"),
        (": 5", "policy", "policy=': 5': expected 'setting: value' in place of ': 5'"),
        ("delay: 1s, delay: 1s", "delay", "'delay' is set twice in policy='delay: 1s, delay: 1s'"),
        ("delay: 5 parsecs", "delay", f"delay='5 parsecs': expected {TIME}"),
        ("retry: many", "retry", "retry='many': expected a whole number of at least 0"),
        ("retry: 2, max_attempts: 3", "max_attempts", f"'retry' and 'max_attempts' {SAME}"),
        ("delay: 2s, max_delay: 1s", "max_delay", "max_delay='1s': expected at least delay (2s)"),
        ("delay: 1s, backoff: random", "backoff", f"backoff='random': expected {STRATEGIES}"),
        (
            "delay: 1s, backoff: linear, multiplier: 2",
            "multiplier",
            "'multiplier' applies only with backoff 'exponential' or 'steps', not with 'linear'",
        ),
        ("retries: 5", "retries", "unknown setting 'retries': did you mean 'retry'?"),
        ("Delay: 5s", "Delay", "unknown setting 'Delay': did you mean 'delay'?"),
        # What another library calls it (seed 002).
        ("backoff_factor: 2", "backoff_factor", "unknown setting 'backoff_factor': did you mean 'multiplier'?"),
        # Texts in other notations: the errors suggest nothing that is invalid too.
        ("slow 1s*2", "policy", f"policy='slow 1s*2': expected {LISTED}"),
        ("slow(base=1)", "policy", "policy='slow(base=1)': expected 'setting: value' in place of 'slow(base=1)'"),
        ("preset: standart", "preset", "preset='standart': expected the name of a policy; did you mean 'standard'?"),
        ("jitter: scaled(0.5, 1.5, delay: 1s", "policy", None),
        ("delay: 1s, jitter: true", "jitter", None),
        ("codes: UNAVAILABLE, ABORTD", "codes", "codes='ABORTD': expected a status code; did you mean 'ABORTED'?"),
        ("codes: UNAVAILABLE, NOPE, delay: 1s", "codes", None),
        ("codes: UNAVAILABLE, INTERNAL: 5, retry: 2", "INTERNAL", None),
        ("codes: UNAVAILABLE, RETRY=3", "policy", None),
        ("delay: 1s, ABORTED", "policy", None),
        ("codes: ABORTED, delay: 1s, CANCELLED", "policy", None),
        ("codes: UNKNWN", "codes", None),
    ],
)
def test_bad_words(text, key, message):
    """BP-4, CH-10: the error for a malformed string or a wrong value has the key, the value and the allowed values."""
    with pytest.raises(OptionError, match=exactly(message) if message else None) as caught:
        parse_policy(text)

    assert caught.value.key == key


def test_who_asked():
    """BP-4: for a malformed string, the error has the string's own key; for a wrong setting, the setting's key."""
    with pytest.raises(OptionError, match=r"^retry='no words': expected "):
        read_retry("retry", "no words", None)
    with pytest.raises(OptionError, match=r"^delay=0: expected "):
        read_retry("retry", "delay: 0", None)


pieces = st.sampled_from(
    ["retry", "delay", "jitter", "steps", ": ", ",", "(", ")", "1", "s", "full", "5ms", "true", " "]
)


@pytest.mark.parametrize("name", RETRY_PRESETS)
def test_a_name(name):
    """BP-2: a preset's name is accepted in place of a policy string, with or without surrounding spaces."""
    assert parse_policy(name) is not None
    assert parse_policy(f" {name} ") == RETRY_PRESETS[name]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("retry=3, delay=1s", "retry: 3, delay: 1s"),
        ("retry = 3", "retry: 3"),
        ("retry: 3, delay=1s", "retry: 3, delay: 1s"),
    ],
)
def test_equals_signs(text, meant):
    """CH-10: the error for a string with `=` suggests the string with colons."""
    for read in (parse_policy, lambda text: read_retry("policy", text, None)):
        with pytest.raises(OptionError, match=re.escape(f"did you mean {meant!r}?") + "$"):
            read(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [("delay: 1s", "delay"), ("delay: 1s, backoff: linear", "delay"), ("steps: 1s 2s, backoff: steps", "steps")],
)
def test_a_delay_without_a_retry(text, key):
    """BP-2, RT-1: a policy string with a delay but no number of retries has no effect, and causes one warning."""
    with pytest.warns(PolicyWarning, match=exactly(f"{key} has no effect without retry or max_attempts")) as caught:
        assert parse_policy(text).max_attempts == 1
    assert len(caught) == 1


@pytest.mark.parametrize(
    "text",
    [
        "retry: 4, delay: 40s, backoff: exponential, jitter: none",
        "retry: 4, delay: 30s, backoff: linear, jitter: none",
        "preset: standard, delay: 1m",
    ],
)
def test_a_delay_above_the_default_cap(text):
    """BP-2: a first wait at or above a cap that the string does not set keeps waits from growing and warns."""
    with pytest.warns(
        PolicyWarning, match=r"^waits do not grow, because delay is .* which is 30 s unless set$"
    ) as caught:
        policy = parse_policy(text)
    assert len(caught) == 1
    assert policy.nominal(1) == policy.nominal(2)


@pytest.mark.parametrize(
    "text",
    [
        "retry: 4, delay: 40s, jitter: none",
        "retry: 4, delay: 40s, backoff: exponential, max_delay: 40s, jitter: none",
        "retry: 4, delay: 40s, backoff: exponential, multiplier: 1, jitter: none",
        "retry: 4, delay: 29s, backoff: exponential, jitter: none",
        *("retry: 0, delay: 1s", "preset: standard, delay: 2s", "max_attempts: 1, delay: 1s"),
        *("retry: 3", "retry: 3, timeout: 1s", "preset: standard, backoff: linear", "preset: steps"),
    ],
)
def test_no_warning(text):
    """BP-2: settings that have an effect cause no warning; nor do waits that grow, or are not meant to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse_policy(text)
    assert not caught


@unhurried
@given(text=st.text() | st.lists(pieces).map("".join))
def test_words_or_error(text):
    """BP-4: parsing any string either gives a policy or raises an `OptionError`."""
    try:
        assert isinstance(parse_policy(text), RetryPolicy)
    except (OptionError, PolicyWarning):
        return


@pytest.mark.parametrize("text", [text for text, _ in BACKOFFS] + [f"delay: 1s, {text}" for text, _ in LIMITS])
def test_same_in_the_file(tmp_path, text):
    """BP-2: a table in the file takes the same keys, and produces the same policy with the same sources."""
    file = tmp_path / "backoff.toml"
    source = read_string(text, RETRYING)
    lines = (f"{said.key} = {in_toml(said.written)}" for said in source.values())
    file.write_text("[policies.mine]\n" + "\n".join(lines))
    of_file, of_words = read_config(file).policy("mine"), resolve_retry([source], {})

    assert of_file.policy == of_words.policy
    assert [
        (value.part, value.origin.replace(f"file {file}: policies.mine.", "policy string: "))
        for value in of_file.effective
    ] == [(value.part, value.origin) for value in of_words.effective]


def in_toml(given):
    return repr(given).lower() if isinstance(given, bool) else f'"{given}"' if isinstance(given, str) else repr(given)


def test_words_of_another_table():
    """BP-2: a policy string with connection settings is parsed in the same way."""
    source = read_string("initial_backoff: 250ms, jitter_first: true, stable_after: 2", CONNECTING)

    assert {part: said.value for part, said in source.items()} == {
        "delay": 0.25,
        "jitter_first": True,
        "stable_after": 2,
    }
