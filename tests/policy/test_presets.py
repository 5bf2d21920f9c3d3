"""The named policies, and that no default stands anywhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import grpc_backoff
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.presets import CONNECT, GRPC, PRESETS

PACKAGE = Path(grpc_backoff.__file__).parent
DEFAULTS = {1.6, 120.0, 20.0, 1800.0, 0.2}
EXCEPTIONS = {
    # (module, name or function where the number stands): why it is no default
    ("cli/demo/script.py", "INITIAL_BACKOFF"): "the demo's compressed time, given to both runs as an option",
    ("testing/clock.py", "_TURNS"): "turns of the event loop, no time",
}


def test_grpc():
    """CB: INITIAL_BACKOFF 1, MULTIPLIER 1.6, JITTER 0.2, MAX_BACKOFF 120."""
    assert BackoffPolicy(Exponential(base=1.0, multiplier=1.6), cap=120.0, jitter=Proportional(0.2)) == GRPC
    assert PRESETS["grpc"] is GRPC


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


def test_presets_are_policies():
    """BP: every preset is a policy that can be asked."""
    assert all(policy.bounds(1)[0] > 0 for policy in PRESETS.values())


def numbers(source):
    """Return (where, number) of each number in a module's code; texts and comments do not count.

    Where is the function or class at the module's top, or the name that the number is assigned to there.
    """
    for statement in ast.parse(source).body:
        where = getattr(statement, "name", None) or ast.unparse(getattr(statement, "targets", [statement])[0])
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                yield where.partition(":")[0], float(node.value)


def strays(path):
    module = path.relative_to(PACKAGE).as_posix()
    return {(module, where): number for where, number in numbers(path.read_text("utf-8")) if number in DEFAULTS}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_second_default(path):
    """BP-3: no default stands anywhere in the code but among the presets."""
    if path != PACKAGE / "policy" / "presets.py":
        assert {place: number for place, number in strays(path).items() if place not in EXCEPTIONS} == {}


def test_exceptions_are_needed():
    """BP-3: an exception goes when its number does."""
    found = {place for path in PACKAGE.rglob("*.py") for place in strays(path)}

    assert set(EXCEPTIONS) <= found


def test_the_search_finds():
    """BP-3: the search sees a default where one stands, and does not see text."""
    source = "A: float = 120  # 1.6\nB = 0.2\ndef f(x=20): '1800'\nclass C: D = -1.6\ng(1800.0)"

    assert list(numbers(source)) == [("A", 120), ("B", 0.2), ("f", 20), ("C", 1.6), ("g(1800.0)", 1800)]
