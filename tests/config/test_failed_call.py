"""The record of a failed call, which hooks receive."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import grpc
import pytest

from grpc_backoff.base.status import Reason
from grpc_backoff.config.failed_call import FailedCall

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
