"""Which objects are accepted as hooks."""

from __future__ import annotations

import functools
from dataclasses import FrozenInstanceError, fields

import pytest

from grpc_backoff.config.hooks import RetryHooks
from grpc_backoff.errors import OptionError
from tests.texts import exactly

NAMES = ["refresh_credentials", "on_conflict", "on_exhausted"]


def test_no_hooks():
    """RT-4: there are three hooks, all of them optional."""
    assert [field.name for field in fields(RetryHooks)] == NAMES
    assert [getattr(RetryHooks(), name) for name in NAMES] == [None] * 3
    with pytest.raises(FrozenInstanceError):
        RetryHooks().on_conflict = print


async def renew(failed):
    return None


class Settle:
    def __call__(self, failed):
        return None

    async def later(self, failed):
        return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hook", [print, renew, Settle(), Settle().later, functools.partial(renew), lambda _: None])
def test_hook(name, hook):
    """RT-4: a hook may be any callable, synchronous or asynchronous."""
    assert getattr(RetryHooks(**{name: hook}), name) is hook


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hook", [5, "print", [print], True])
def test_no_hook(name, hook):
    """CH-10: an object that is not callable is rejected when the hooks are created, not when the first call fails."""
    said = f"RetryHooks.{name}={hook!r}: expected a function, or None for no hook"
    with pytest.raises(OptionError, match=exactly(said)):
        RetryHooks(**{name: hook})


def test_by_name_only():
    """RT-4: hooks are keyword-only, because three functions in a row are easily confused."""
    with pytest.raises(TypeError):
        RetryHooks(print)
