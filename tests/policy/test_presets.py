"""The named policies, and that no default stands anywhere else."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import astuple, is_dataclass, replace
from pathlib import Path

import pytest

import grpc_backoff
from grpc_backoff.config.settings import resolve_connect
from grpc_backoff.config.sources import say
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.jitter import Additive, NoJitter, Proportional, Scaled
from grpc_backoff.policy.presets import CONNECT, GRPC, PRESETS, RETRY
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Exponential, Fixed, Linear, Steps

ALSO = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})

# The named policies, row by row: strategy, cap, jitter, tries in all, and the seconds for the whole operation.
TABLE = [
    ("grpc", Exponential(1.0, 1.6), 120.0, Proportional(0.2), None, None, ALSO),
    ("contention", Exponential(0.010, 2.0, max_exponent=6), 1.0, Additive(0.5), 7, 30.0, ALSO | {"ABORTED"}),
    ("steps", Steps((1.0, 2.0, 4.0, 8.0, 16.0, 32.0), 2.0), 60.0, Proportional(0.1, then_cap=True), None, None, ALSO),
    ("standard", Exponential(1.0, 2.0), 30.0, Scaled(0.5, 1.5), 5, None, ALSO),
    ("aggressive", Exponential(0.5, 2.0), 10.0, Scaled(0.5, 1.5), 5, None, ALSO),
    ("conservative", Exponential(2.0, 2.0), 30.0, Scaled(0.5, 1.5), 5, None, ALSO),
    ("background", Exponential(2.0, 2.0), 60.0, Scaled(0.5, 1.5), 7, None, ALSO),
]
# Those that have a delay of nobody's but the user's, here 3 s.
BY_WORDS = [("fixed", Fixed(3.0)), ("linear", Linear(3.0)), ("exponential", Exponential(3.0, 2.0))]


@pytest.mark.parametrize(
    ("name", "strategy", "cap", "jitter", "attempts", "deadline", "codes"), TABLE, ids=[row[0] for row in TABLE]
)
def test_preset(name, strategy, cap, jitter, attempts, deadline, codes):
    """BP: every preset is the policy of its document, number by number."""
    assert RETRY[name] == RetryPolicy(
        backoff=BackoffPolicy(strategy, cap, jitter),
        max_attempts=attempts,
        codes=codes,
        timeout=None,
        deadline=deadline,
        server_delay_jitter=0.0 if name == "contention" else 5.0,
        max_server_delay=60.0 if name == "steps" else None,
    )


@pytest.mark.parametrize(("name", "strategy"), BY_WORDS)
def test_preset_of_words(name, strategy):
    """BP-2: RFC-006's strategies double, wait 30 s at most without jitter, and leave delay and retries to the user."""
    assert RetryPolicy.parse(f"preset: {name}, delay: 3s, retry: 2") == RetryPolicy(
        backoff=BackoffPolicy(strategy, 30.0, NoJitter()), max_attempts=3, codes=ALSO, server_delay_jitter=5.0
    )


def test_all_presets():
    """BP: no preset but those above."""
    assert list(PRESETS) == [row[0] for row in TABLE] + [name for name, _ in BY_WORDS]
    assert list(RETRY) == [row[0] for row in TABLE]


def test_connect():
    """CB: MIN_CONNECT_TIMEOUT 20; first gap without jitter, `stable_after` off, lazy, idle after half an hour."""
    assert (
        ConnectPolicy(
            backoff=GRPC,
            min_connect_timeout=20.0,
            jitter_first=False,
            stable_after=0.0,
            reconnect=Reconnect.LAZY,
            idle_timeout=1800.0,
        )
        == CONNECT
    )
    assert RETRY["grpc"].backoff == GRPC


@pytest.mark.parametrize("name", RETRY)
def test_every_preset_connects(name):
    """BP: every preset with a delay is a way to connect too; what is no backoff is gRPC's."""
    assert resolve_connect([say("a test", {"preset": name})], {}).policy == replace(
        CONNECT, backoff=RETRY[name].backoff
    )


@pytest.mark.parametrize("mapping", [PRESETS, RETRY])
def test_nobody_changes_them(mapping):
    """BP-3: the presets are the same for all, so nobody can set one."""
    with pytest.raises(TypeError):
        mapping["grpc"] = None


PACKAGE = Path(grpc_backoff.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
EXCEPTIONS = {
    # (module, name or function where the number stands): why it is no default
    ("cli/demo/script.py", "INITIAL_BACKOFF"): "the demo's compressed time, given to both runs as an option",
    ("cli/demo/script.py", "_SECONDS"): "how long parts of the demo last",
    ("cli/diagnosis.py", "_UNTRUSTED"): "OpenSSL's numbers for what is wrong with a certificate",
    ("cli/live.py", "_BAR_WIDTH"): "characters on a screen",
    ("cli/plot.py", "(_WIDTH, _ROW, _LAST)"): "inches on paper",
    ("cli/simulate.py", "simulate"): "the length of an outage that nobody gave",
    ("connection/dial.py", "CLOSED_WITHIN"): "how soon a socket is closed (CB-3)",
    ("policy/checks.py", "_SECONDS"): "so many seconds has a minute",
    ("retry/decision.py", "_LONGEST"): "hours and minutes to seconds",
    ("telemetry/otel.py", "DELAYS"): "the bounds of a histogram",
    ("testing/checks.py", "_BEFORE"): "how long before its limit an attempt is looked at",
    ("testing/clock.py", "_TURNS"): "turns of the event loop, no time",
}
WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def numbers_in(value):
    """Return every number in a value of a preset."""
    if isinstance(value, tuple):
        return {number for each in value for number in numbers_in(each)}
    if is_dataclass(value):
        return numbers_in(astuple(value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def says_nothing(number):
    """Return whether a number stands for many things, so that finding it elsewhere tells of no second default.

    Whole numbers up to ten are counts and places, powers of two are sizes, powers of ten are units, and a half is a
    half.
    """
    return number in {*range(11), 0.5} or math.log2(number).is_integer() or math.log10(number).is_integer()


ALL = {number for source in PRESETS.values() for said in source.values() for number in numbers_in(said)}
DEFAULTS = {number for number in ALL if not says_nothing(number)}
MILLISECONDS = {number * 1000 for number in DEFAULTS if number >= 10}
"""The longer times once more: grpc's options are in milliseconds."""


def numbers(source):
    """Return (where, number) of each number in a module's code, and of each time that is written as "30s".

    Where is the function or class at the module's top, or the name that the number is assigned to there. Comments and
    other texts do not count.
    """
    for statement in ast.parse(source).body:
        where = getattr(statement, "name", None) or ast.unparse(getattr(statement, "targets", [statement])[0])
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                yield where.partition(":")[0], float(node.value)
            elif isinstance(node, ast.Constant) and (written := WRITTEN.fullmatch(str(node.value))):
                yield where.partition(":")[0], float(written[1]) * SECONDS[written[2]]


def strays(module):
    found = numbers(SOURCES[module])
    return {(module, where, number) for where, number in found if number in DEFAULTS | MILLISECONDS}


@pytest.mark.parametrize("module", sorted(SOURCES.keys() - {"policy/presets.py"}))
def test_no_second_default(module):
    """BP-3: no default stands anywhere in the code but among the presets."""
    assert {stray for stray in strays(module) if stray[:2] not in EXCEPTIONS} == set()


def test_exceptions_are_needed():
    """BP-3: an exception goes when its number does."""
    assert set(EXCEPTIONS) <= {stray[:2] for module in SOURCES for stray in strays(module)}


def test_what_is_searched_for():
    """BP-3: the numbers come from the presets themselves; these are the ones that speak for themselves."""
    assert sorted(DEFAULTS) == [0.2, 1.5, 1.6, 20.0, 30.0, 60.0, 120.0, 1800.0]
    assert {number for _, _, number in strays("policy/presets.py")} == DEFAULTS


def test_the_search_finds():
    """BP-3: the search sees a default where one stands, in whichever spelling, and does not see text."""
    source = (
        "A: float = 120  # 1.6\nB = 0.2\ndef f(x=20): '1800'\nclass C: D = -1.6\ng(1800.0)\n"
        "def h(): return 120_000\nE = {'a': '30s'}\nF = ['2m', '30 s', 'in 30s']"
    )

    assert list(numbers(source)) == [
        ("A", 120),
        ("B", 0.2),
        ("f", 20),
        ("C", 1.6),
        ("g(1800.0)", 1800),
        ("h", 120_000),
        ("E", 30),
        ("F", 120),
    ]
