"""Warnings about policies, and the lines that they point to."""

from __future__ import annotations

import _thread
import subprocess
import sys
import threading
import types

import pytest

from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.errors import PolicyWarning

DEEP = """
def deep(depth):
    return deep(depth - 1) if depth else [warn_of([text]) for text in ["a has no effect"]]
"""


def function_of(name):
    """Return a function from a module with this name; it recurses to a given depth and then issues a warning."""
    module = types.ModuleType(name)
    module.warn_of = warn_of
    exec(DEEP, vars(module))
    return module.deep


def test_every_remark():
    """BP-2: each remark is issued as a separate warning."""
    with pytest.warns(PolicyWarning) as caught:
        warn_of(["a has no effect", "b has no effect"])

    assert [str(warning.message) for warning in caught] == ["a has no effect", "b has no effect"]
    assert {warning.filename for warning in caught} == {__file__}


DAEMON = """
import sys
import grpc_backoff
from grpc_backoff.errors import PolicyWarning
sys.stderr.close()
try:
    grpc_backoff.insecure_channel("127.0.0.1:1", retry="retry: 3, delay: 10ms").close()
except PolicyWarning:
    print("a warning")
"""


@pytest.mark.parametrize(("action", "told"), [("always", ""), ("error", "a warning\n")])
def test_stderr_is_closed(action, told):
    """BP-2: a warning that cannot be written, because a daemon has closed stderr, refuses no setting."""
    command = [sys.executable, "-W", f"{action}::UserWarning", "-c", DAEMON]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == told


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
    """BP-2: more than ten retries without a delay cause a warning, and so do unlimited retries without a deadline."""
    said = list(doubts(parse_policy(words), bounded=bounded))

    assert len(said) == len(told)
    assert all(f"expected {expected}" in doubt for doubt, expected in zip(said, told, strict=True))


def test_nothing_to_say(recwarn):
    """BP-2: without remarks, there is no warning."""
    warn_of([])

    assert list(recwarn) == []


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_points_outside(depth):
    """BP-2: a warning points to the nearest line outside this library, even if the stack is deep."""
    deep = function_of("grpc_backoff.somewhere")

    with pytest.warns(PolicyWarning) as caught:
        deep(depth)

    assert caught[0].filename == __file__
    assert caught[0].lineno == test_points_outside.__code__.co_firstlineno + 6


def test_a_namesake_is_outside():
    """BP-2: a module whose name only begins like this library's counts as outside."""
    with pytest.warns(PolicyWarning) as caught:
        function_of("grpc_backoff_shop")(0)

    assert caught[0].filename == "<string>"


def test_without_a_name():
    """BP-2: code that belongs to no module counts as outside."""
    names = {"warn_of": warn_of}
    exec(DEEP, names)

    with pytest.warns(PolicyWarning) as caught:
        names["deep"](0)

    assert caught[0].filename == "<string>"


def test_nobody_outside():
    """BP-2: the warning is issued even if no line is outside the library, as in one of its own threads."""
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
