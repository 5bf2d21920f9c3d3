"""The listeners of a channel: which functions may be one."""

from __future__ import annotations

from functools import partial

import pytest

from grpc_backoff import OptionError
from grpc_backoff.config.channel_setup import check_listener, read_listeners


async def coroutine(_event):
    """A coroutine function, which would never be awaited if it were a listener."""


class Coroutine:
    """Makes objects that are called as coroutine functions are."""

    async def __call__(self, event):
        """Never be awaited, either."""


def test_listeners():
    """CH-11: listeners may be any functions, in any sequence."""
    assert read_listeners([print, len]) == (print, len)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "listeners=3"),
        ([print, 4], r"listeners\[1\]=4"),
        ([coroutine], r"listeners\[0\]="),
        ([Coroutine()], r"listeners\[0\]="),
        ([partial(coroutine)], r"listeners\[0\]="),
    ],
)
def test_no_listeners(given, words):
    """CH-10: an object that cannot be a listener is rejected; the error gives its index in a sequence."""
    with pytest.raises(OptionError, match=words):
        read_listeners(given)
    with pytest.raises(OptionError, match="listener="):
        check_listener("listener", coroutine)
