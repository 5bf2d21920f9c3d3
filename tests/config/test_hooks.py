"""Which objects are accepted as hooks, and the record of a failed call, which they receive."""

from __future__ import annotations

import functools
from dataclasses import FrozenInstanceError, fields, replace

import grpc
import pytest

from grpc_backoff.base.status import Reason
from grpc_backoff.config.hooks import FailedCall, RetryHooks
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


FAILED = FailedCall(
    target="dns:shop:443",
    method="/shop.Orders/Place",
    attempt=2,
    code=grpc.StatusCode.ABORTED,
    details="somebody was faster",
    trailing_metadata=(("authorization", "Bearer s3cret"), ("x-bin", b"s3cret")),
    took=1.5,
)


def test_failed_call():
    """RT-5: a hook receives a frozen record with the server's trailing metadata."""
    assert dict(FAILED.trailing_metadata)["x-bin"] == b"s3cret"
    assert FAILED.reason is None
    assert replace(FAILED, reason=Reason.BUDGET).reason is Reason.BUDGET
    with pytest.raises(FrozenInstanceError):
        FAILED.attempt = 3


def test_no_secrets():
    """RT-11: the text form of a record contains no metadata, because it may end up in a log."""
    for shown in (repr(FAILED), str(FAILED), f"{FAILED}", repr([FAILED])):
        assert "s3cret" not in shown
        assert "authorization" not in shown
    assert "method='/shop.Orders/Place'" in repr(FAILED)
