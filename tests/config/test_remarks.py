"""Where a warning points that is about a policy."""

from __future__ import annotations

import _thread
import threading
import types

import pytest

from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.errors import PolicyWarning
from grpc_backoff.policy.retry import RetryPolicy

DEEP = """
def deep(depth):
    return deep(depth - 1) if depth else [warn_of([text]) for text in ["a has no effect"]]
"""


def function_of(name):
    """Return a function of a module of this name that asks for a warning from so many calls deep."""
    module = types.ModuleType(name)
    module.warn_of = warn_of
    exec(DEEP, vars(module))
    return module.deep


def test_every_remark():
    """BP-2: each remark is a warning of its own, in its own words."""
    with pytest.warns(PolicyWarning) as caught:
        warn_of(["a has no effect", "b has no effect"])

    assert [str(warning.message) for warning in caught] == ["a has no effect", "b has no effect"]
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize(
    ("words", "bounded", "told"),
    [
        ("retry: 10", False, []),
        ("retry: 11", False, ["a delay"]),
        ("retry: 11", True, ["a delay"]),
        ("retry: 11, delay: 1ms", False, []),
        ("retry: 1000, delay: 1ms", False, []),
        ("max_attempts: unlimited", False, ["a delay", "a deadline"]),
        ("max_attempts: unlimited, delay: 1s", False, ["a deadline"]),
        ("max_attempts: unlimited, delay: 1s", True, []),
        ("steps", False, ["a deadline"]),
        ("standard", False, []),
    ],
)
def test_doubts(words, bounded, told):
    """BP-2: more than ten retries without delay, and retries without any end, are worth a warning each."""
    said = list(doubts(RetryPolicy.parse(words), bounded=bounded))

    assert len(said) == len(told)
    assert all(f"expected {expected}" in doubt for doubt, expected in zip(said, told, strict=True))


def test_nothing_to_say(recwarn):
    """BP-2: without a remark there is no warning."""
    warn_of([])

    assert list(recwarn) == []


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_points_outside(depth):
    """BP-2: the line is the nearest that is not this library's, however deep inside the policy was asked for."""
    deep = function_of("grpc_backoff.somewhere")

    with pytest.warns(PolicyWarning) as caught:
        deep(depth)

    assert caught[0].filename == __file__
    assert caught[0].lineno == test_points_outside.__code__.co_firstlineno + 6


def test_a_namesake_is_outside():
    """BP-2: a program whose name only begins as this library's does is a program."""
    with pytest.warns(PolicyWarning) as caught:
        function_of("grpc_backoff_shop")(0)

    assert caught[0].filename == "<string>"


def test_without_a_name():
    """BP-2: code that belongs to no module is outside as well."""
    names = {"warn_of": warn_of}
    exec(DEEP, names)

    with pytest.warns(PolicyWarning) as caught:
        names["deep"](0)

    assert caught[0].filename == "<string>"


def test_nobody_outside():
    """BP-2: the warning is given all the same where all lines are this library's: in a thread of nothing else."""
    told = threading.Event()

    def remarks():
        yield "a has no effect"
        told.set()

    def tell():
        _thread.start_new_thread(warn_of, (remarks(),))
        return told.wait(20)

    with pytest.warns(PolicyWarning, match="a has no effect") as caught:
        assert tell()

    assert len(caught) == 1
