"""Defaults are defined in one place: no number from a preset occurs anywhere else in the code."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import astuple, is_dataclass
from pathlib import Path

import pytest

import grpc_backoff
from grpc_backoff.policy.presets import PRESETS

PACKAGE = Path(grpc_backoff.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
EXCEPTIONS = {
    # (module, function or variable that contains the number): why it is not a default
    ("decide/calls/decision.py", "_LONGEST"): "hours and minutes to seconds",
    ("decide/calls/resets.py", "CALM"): "how long a server that wants calm gets no second copies",
    ("decide/calls/subscription_machine.py", "STEADY"): "how long a stream lasts that has not failed",
    ("cli/live.py", "_BAR_WIDTH"): "characters on a screen",
    ("config/credentials.py", "tls_files"): "how often files are looked at, which is no backoff",
    ("ledger/delivery/upkeep.py", "(_SWEEP_EVERY, _SWEEP_SELDOM)"): "how often dead rows are looked for",
    ("ledger/ledger.py", "_PAGE"): "rows",
    ("ledger/inbox/aio.py", "AioInbox"): "how long a repeat waits for the first call",
    ("ledger/inbox/sync.py", "SyncInbox"): "how long a repeat waits for the first call",
    ("ledger/transactions/counting.py", "_SAMPLE"): "rows",
    ("server.py", "_GRACE"): "how long a server waits for its calls",
    (
        "decide/connections/dial_times.py",
        "(CORE_MULTIPLIER, CORE_JITTER)",
    ): "how the core's own redials grow, which nothing can set",
    ("decide/connections/dial_times.py", "SPARE_UNTIL"): "how old a connection may be that waits for the next channel",
    ("policy/pooling.py", "PoolPolicy"): "the defaults of a pool, which the presets take from there",
    ("policy/ledger_settings.py", "KEEPING"): "the defaults of a ledger",
    ("policy/connect.py", "DIALLING"): "the defaults of all presets, which they take from there",
    ("policy/connect.py", "GRPC_GROWTH"): "the growth of the preset `grpc`, which is taken from there",
    ("policy/connect.py", "GRPC"): "the cap and the jitter of the preset `grpc`, which are taken from there",
    ("decide/connections/pool_machine.py", "UNUSED_FOR"): "how long a connection that is not needed waits for a call",
    ("policy/checks.py", "_SECONDS"): "so many seconds has a minute",
    ("probe/diagnosis.py", "_UNTRUSTED"): "OpenSSL's numbers for what is wrong with a certificate",
    ("probe/dial.py", "_CLOSED_WITHIN"): "how soon a socket is closed (CB-3)",
    ("sync/conductor.py", "POLL_EVERY"): "how often connections that stand are looked at",
    ("sync/channel.py", "_CLOSES_WITHIN"): "how long a close waits for other threads",
    ("sync/pump.py", "_SLICE"): "how long the core is waited for at a time",
    ("telemetry/otel.py", "DELAYS"): "the bounds of a histogram",
    ("testing/clock.py", "_TURNS"): "turns of the event loop, no time",
}
WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def numbers_in(value):
    """Return every number in a preset's value."""
    if isinstance(value, tuple):
        return {number for each in value for number in numbers_in(each)}
    if is_dataclass(value):
        return numbers_in(astuple(value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def says_nothing(number):
    """Return whether a number is so common that finding it elsewhere does not suggest a second default.

    Whole numbers up to ten are counts and indexes, powers of two are sizes, powers of ten are units, and 0.5 is a half.
    """
    return number in {*range(11), 0.5} or math.log2(number).is_integer() or math.log10(number).is_integer()


ALL = {number for source in PRESETS.values() for said in source.values() for number in numbers_in(said)}
DEFAULTS = {number for number in ALL if not says_nothing(number)}
MILLISECONDS = {number * 1000 for number in DEFAULTS if number >= 10}
"""The longer times in milliseconds, which grpc's options use."""


def numbers(source):
    """Yield (where, number) for each number in a module's code, and for each time in text such as "30s".

    `where` is the top-level function or class, or the top-level name that the number is assigned to. Comments and other
    strings do not count.
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
    """BP-3: a default stands in one place: in the presets, or in the settings that they take it from."""
    assert {stray for stray in strays(module) if stray[:2] not in EXCEPTIONS} == set()


def test_exceptions_are_needed():
    """BP-3: every exception in the list is still needed, because its number still occurs in that place."""
    assert set(EXCEPTIONS) <= {stray[:2] for module in SOURCES for stray in strays(module)}


def test_what_is_searched_for():
    """BP-3: the search looks for the distinctive numbers of the presets."""
    assert sorted(DEFAULTS) == [0.2, 1.5, 1.6, 20.0, 30.0, 60.0, 120.0, 600.0, 1800.0, 259_200.0]
    found = {number for module in ("policy/presets.py", "policy/connect.py") for _, _, number in strays(module)}
    assert found == DEFAULTS


def test_the_search_finds():
    """BP-3: the search finds defaults in every notation and ignores numbers in comments and other text."""
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
