"""CH-10: arguments that are objects of the program's own."""

from __future__ import annotations

import random

import pytest

from grpc_backoff.config.arguments import check_kind, check_listener, read_listeners
from grpc_backoff.errors import OptionError


async def coroutine(_event):
    """Nobody would await it."""


def test_listeners():
    """CH-11: any functions, in any sequence."""
    assert read_listeners([print, len]) == (print, len)


@pytest.mark.parametrize(
    ("given", "words"), [(3, "listeners=3"), ([print, 4], r"listeners\[1\]=4"), ([coroutine], r"listeners\[0\]=")]
)
def test_no_listeners(given, words):
    """CH-10: what is none is refused, with its place."""
    with pytest.raises(OptionError, match=words):
        read_listeners(given)
    with pytest.raises(OptionError, match="listener="):
        check_listener("listener", coroutine)


@pytest.mark.parametrize("value", [3, random.Random, object()])
def test_kinds(value):
    """CH-10: an object has to have the methods; a class is none."""
    check_kind("rng", random.Random(1), "a source", "random")
    with pytest.raises(OptionError, match="rng="):
        check_kind("rng", value, "a source", "random")
