"""The tables of settings, and how a source is read by them."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from functools import partial

import pytest

from grpc_backoff.config.file import read_config
from grpc_backoff.config.options import read_options
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.resolving import resolve_call
from grpc_backoff.config.service_config import from_service_config, read_throttling
from grpc_backoff.config.settings import CONNECTING, read_source
from grpc_backoff.config.sources import SourceValue
from grpc_backoff.errors import ConfigError, OptionError
from grpc_backoff.policy.budget import BUDGETING, RetryBudget
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.hedging import HedgingPolicy
from grpc_backoff.policy.jitter import Full
from grpc_backoff.policy.pooling import POOLING, PoolPolicy
from grpc_backoff.policy.presets import CONNECT, GRPC, RETRY_PRESETS
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import PREFIX, checks_of
from grpc_backoff.policy.strategy import Exponential, Steps
from tests.config.native import NATIVE
from tests.texts import exactly

STANDARD = RETRY_PRESETS["standard"]
BACKOFF = {"preset", "delay", "max_delay", "multiplier", "jitter"}


def parts(table):
    return {setting.part or setting.name for setting in table}


def test_connecting_is_complete():
    """BP-3: every part of a connect policy or a pool policy has exactly one setting and one channel option."""
    named = {field.name for field in fields(ConnectPolicy) if field.init} | {*PoolPolicy._fields}
    assert parts(CONNECTING) - BACKOFF == named - {"backoff", "round_robin", "health_service"}
    assert len(parts(CONNECTING)) == len({setting.option for setting in CONNECTING}) == len(CONNECTING)
    assert all(setting.option.startswith(("grpc.", PREFIX)) for setting in CONNECTING)


def test_retrying_is_complete():
    """BP-2: every part of a retry policy has one setting, except that the number of attempts has two."""
    assert parts(RETRYING) - BACKOFF == {field.name for field in fields(RetryPolicy)} | {"max_exponent", "steps"}
    assert len({setting.name for setting in RETRYING}) == len(RETRYING) == len(parts(RETRYING)) + 1


def test_budgeting_is_complete():
    """RT-9: both numbers of a retry budget have a setting."""
    assert [setting.name for setting in BUDGETING] == [field.name for field in fields(RetryBudget)]


def test_read_source():
    """BP-3: values are checked, converted to seconds, and stored with the key exactly as the user wrote it."""
    given = {"initial_backoff": ("a.first", 250), "jitter": ("b", "full")}

    assert read_source(CONNECTING, given, "somewhere") == {
        "delay": SourceValue(0.25, "a.first", 250, "somewhere"),
        "jitter": SourceValue(Full(), "b", "full", "somewhere"),
    }
    assert read_source(CONNECTING, {"initial_backoff": ("a", "250ms")}, "s", Unit.WRITTEN)["delay"].value == 0.25
    assert read_source(CONNECTING, {"initial_backoff": ("a", 2)}, "s", Unit.SECONDS)["delay"].value == 2


def test_one_source_against_itself():
    """CH-10: one source may not set a maximum below its first wait; the error shows the keys as the user wrote them."""
    given = {"initial_backoff": ("a.initial", "20ms"), "max_backoff": ("a.max", 0.01)}

    with pytest.raises(OptionError, match=exactly("a.max=0.01: expected at least a.initial (20ms)")):
        read_source(CONNECTING, given, "somewhere", Unit.WRITTEN)


@pytest.mark.parametrize(
    ("table", "name", "key", "meant"),
    [
        (CONNECTING, "jiter", "connection.jiter", "connection.jitter"),
        (CONNECTING, "initial_reconnect_backoff_ms", "c.initial_reconnect_backoff_ms", "c.initial_backoff"),
        (CONNECTING, "max backoff", 'connection."max backoff"', "connection.max_backoff"),
        (RETRYING, "retries", "retries", "retry"),
        (RETRYING, "Max-Attempts", "policies.x.Max-Attempts", "policies.x.max_attempts"),
        (RETRYING, "max delay", 'policies."a b"."max delay"', 'policies."a b".max_delay'),
    ],
)
def test_unknown(table, name, key, meant):
    """CH-10: the error for an unknown setting suggests the nearest key, with the same path."""
    with pytest.raises(OptionError, match=exactly(f"unknown setting {key!r}: did you mean {meant!r}?")):
        read_source(table, {name: (key, 1)}, "somewhere", Unit.WRITTEN)


POOL_CHECKS = checks_of(POOLING)
WRONG = {
    # For each part of a policy: a wrong value, a function that passes it in code, and the part's key in a service
    # config.
    "delay": (-1, lambda wrong: Exponential(wrong, 2.0), "initialBackoff"),
    "max_delay": (0, lambda wrong: replace(GRPC, cap=wrong), "maxBackoff"),
    "multiplier": (0.5, lambda wrong: Exponential(1.0, wrong), "backoffMultiplier"),
    "max_exponent": (-1, lambda wrong: Exponential(1.0, 2.0, wrong), None),
    "steps": ([], lambda wrong: Steps(wrong, 2.0), None),
    "max_attempts": (0, lambda wrong: replace(STANDARD, max_attempts=wrong), None),
    "codes": ([], lambda wrong: replace(STANDARD, codes=wrong), "retryableStatusCodes"),
    "timeout": (-1, lambda wrong: replace(STANDARD, timeout=wrong), None),
    "deadline": (-1, lambda wrong: replace(STANDARD, deadline=wrong), None),
    "server_delay_jitter": (-1, lambda wrong: replace(STANDARD, server_delay_jitter=wrong), None),
    "max_server_delay": (-1, lambda wrong: replace(STANDARD, max_server_delay=wrong), None),
    "never_ran_only": (2, lambda wrong: replace(STANDARD, never_ran_only=wrong), None),
    "min_connect_timeout": (-1, lambda wrong: replace(CONNECT, min_connect_timeout=wrong), None),
    "jitter_first": (2, lambda wrong: replace(CONNECT, jitter_first=wrong), None),
    "stable_after": (-1, lambda wrong: replace(CONNECT, stable_after=wrong), None),
    "idle_timeout": (-1, lambda wrong: replace(CONNECT, idle_timeout=wrong), None),
    "max_connections": (1001, lambda wrong: POOL_CHECKS["max_connections"]("x", wrong, Unit.SECONDS), None),
    "streams_per_connection": (0, lambda wrong: POOL_CHECKS["streams_per_connection"]("x", wrong, Unit.SECONDS), None),
    "resolve_every": (0.5, lambda wrong: POOL_CHECKS["resolve_every"]("x", wrong, Unit.SECONDS), None),
    "min_resolve_interval": (-1, lambda wrong: POOL_CHECKS["min_resolve_interval"]("x", wrong, Unit.SECONDS), None),
    "quiet_after": (0.05, lambda wrong: POOL_CHECKS["quiet_after"]("x", wrong, Unit.SECONDS), None),
    "answer_within": (0, lambda wrong: POOL_CHECKS["answer_within"]("x", wrong, Unit.SECONDS), None),
    "watch_network": (2, lambda wrong: POOL_CHECKS["watch_network"]("x", wrong, Unit.SECONDS), None),
    "max_tokens": (1001, lambda wrong: RetryBudget(wrong, 0.1), "maxTokens"),
    "token_ratio": (0, lambda wrong: RetryBudget(10, wrong), "tokenRatio"),
}
AS_WRITTEN = re.compile(", (or|as) a string such as .*")


def refusals(part, wrong, make, native, folder):
    """Yield a callable for each way to give this part the wrong value."""
    yield lambda: make(wrong)
    for table, name in (("connection", CONNECTING), ("policies.p", RETRYING), ("retry_budget", BUDGETING)):
        for setting in name:
            if part != (setting.part or setting.name) or setting.name == "retry":
                continue
            file = folder / f"{table}.{setting.name}.toml"
            file.write_text(f"[{table}]\n{setting.name} = {json.dumps(wrong)}\n", "utf-8")
            yield partial(read_config, file)
            if setting.option is not None and setting.unit is Unit.SECONDS:
                yield partial(read_options, [(setting.option, wrong)])
    if part in parts(RETRYING) and wrong != []:
        yield partial(parse_policy, f"{part}: {wrong}")
    if native in NATIVE:
        written = f"{wrong}s" if native.endswith("Backoff") else wrong
        yield partial(from_service_config, {**NATIVE, native: written})
    elif native is not None:
        throttling = {"maxTokens": 10, "tokenRatio": 0.1, native: wrong}
        yield partial(read_throttling, {"retryThrottling": throttling})


@pytest.mark.parametrize("part", WRONG)
def test_one_text_for_one_wrong_number(part, tmp_path):
    """CH-10, BP-4: a wrong value gives the same message in code, in the file, as an option and in a policy string."""
    wrong, make, native = WRONG[part]
    said = []
    for give in refusals(part, wrong, make, native, tmp_path):
        with pytest.raises((OptionError, ConfigError)) as caught:
            give()
        said.append(AS_WRITTEN.sub("", str(caught.value).partition(": expected ")[2]))

    assert len(said) > 1
    assert len(set(said)) == 1


def test_every_number_is_tried():
    """CH-10: every setting that is not a name has a case in `WRONG`."""
    names = {"preset", "backoff", "reconnect", "jitter"}  # a jitter is a name or a number
    numbers = [setting for setting in (*CONNECTING, *RETRYING, *BUDGETING) if setting.name not in names]

    assert {setting.part or setting.name for setting in numbers} == set(WRONG)


def test_hedging_has_a_table_of_its_own():
    """HG-9: with `hedge`, the settings of a channel's calls are those of hedging; `attempts` is `max_attempts`."""
    given = {"hedge": ("hedge", "50ms"), "attempts": ("attempts", 3)}
    resolved = resolve_call(read_source(None, given, "here", Unit.WRITTEN), {})
    assert resolved.policy == HedgingPolicy(hedging_delay=0.05, max_attempts=3)
    assert [(each.part, each.origin) for each in resolved.effective] == [
        ("hedging_delay", "here: hedge"),
        ("max_attempts", "here: attempts"),
        ("non_fatal_codes", "default"),
        ("deadline", "default"),
    ]


@pytest.mark.parametrize(
    ("table", "names", "problem"),
    [
        (None, ["hedge", "preset"], "either retried or hedged"),
        (None, ["hedge", "codes"], "either retried or hedged"),
        (None, ["attempts"], "unknown setting 'attempts'"),
        (RETRYING, ["hedge", "attempts"], "only for the calls of a channel"),
        (CONNECTING, ["hedge"], "unknown setting 'hedge'"),
    ],
)
def test_hedging_elsewhere(table, names, problem):
    """HG-9: hedging has no place beside retries, and only a channel's calls are hedged."""
    with pytest.raises(OptionError, match=problem):
        read_source(table, {name: (name, "50ms") for name in names}, "here", Unit.WRITTEN)
