"""CH-10: checks of arguments that are objects from user code, such as listeners and random sources."""

from __future__ import annotations

import random

import pytest

from grpc_backoff.config.arguments import check_kind, check_listener, read_listeners
from grpc_backoff.errors import OptionError


async def coroutine(_event):
    """A coroutine function, which would never be awaited if it were a listener."""


def test_listeners():
    """CH-11: listeners may be any functions, in any sequence."""
    assert read_listeners([print, len]) == (print, len)


@pytest.mark.parametrize(
    ("given", "words"), [(3, "listeners=3"), ([print, 4], r"listeners\[1\]=4"), ([coroutine], r"listeners\[0\]=")]
)
def test_no_listeners(given, words):
    """CH-10: an object that cannot be a listener is rejected; the error gives its index in a sequence."""
    with pytest.raises(OptionError, match=words):
        read_listeners(given)
    with pytest.raises(OptionError, match="listener="):
        check_listener("listener", coroutine)


@pytest.mark.parametrize("value", [3, random.Random, object()])
def test_kinds(value):
    """CH-10: an argument is rejected if it lacks the required method, or is a class instead of an instance."""
    check_kind("rng", random.Random(1), "a source", "random")
    with pytest.raises(OptionError, match="rng="):
        check_kind("rng", value, "a source", "random")
