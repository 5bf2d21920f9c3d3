"""The errors of failed calls: their contents, pickling, and references, which must not keep a call alive."""

from __future__ import annotations

import pickle

import grpc
import grpc.aio
import pytest

from grpc_backoff.aio.errors import CallError, NoConnectionError, RetriesExhaustedError
from grpc_backoff.calls.events import Reason


def test_pickle_no_connection():
    """CH-4: a pickled error keeps its code, its details and the channel's status."""
    status = {"stands": "for a status"}
    error = NoConnectionError(grpc.StatusCode.UNAVAILABLE, details="no connection", status=status)
    copy = pickle.loads(pickle.dumps(error))

    assert (copy.code(), copy.details(), copy.status) == (grpc.StatusCode.UNAVAILABLE, "no connection", status)


def exhausted():
    return RetriesExhaustedError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.aio.Metadata(("server", "a")),
        grpc.aio.Metadata(("retry-after", "5"), ("x-bin", b"\x00")),
        "busy; gave up after 3 attempts in 1.5 s: the retry budget is used up",
        "UNKNOWN:busy",
        attempts=3,
        took=1.5,
        reason=Reason.BUDGET,
    )


def test_exhausted():
    """RT-6: the error has the last attempt's outcome, the number of attempts, the time taken and why retries ended."""
    error = exhausted()

    assert (error.attempts, error.took, error.reason) == (3, 1.5, Reason.BUDGET)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "busy; gave up after 3 attempts in 1.5 s: the retry budget is used up"
    assert [*error.initial_metadata()] == [("server", "a")]
    assert [*error.trailing_metadata()] == [("retry-after", "5"), ("x-bin", b"\x00")]
    assert error.debug_error_string() == "UNKNOWN:busy"


def test_exhausted_of_one():
    """RT-6: the error's number of attempts is one by default."""
    error = RetriesExhaustedError(grpc.StatusCode.ABORTED, grpc.aio.Metadata(), grpc.aio.Metadata())

    assert (error.attempts, error.took, error.reason) == (1, 0.0, Reason.ATTEMPTS)


def test_pickle_exhausted():
    """RT-6: the error can be pickled without loss."""
    error = exhausted()
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is RetriesExhaustedError
    assert (copy.attempts, copy.took, copy.reason) == (3, 1.5, Reason.BUDGET)
    assert (copy.code(), copy.details(), copy.debug_error_string()) == (
        error.code(),
        error.details(),
        error.debug_error_string(),
    )
    assert [*copy.initial_metadata()] == [*error.initial_metadata()]
    assert [*copy.trailing_metadata()] == [*error.trailing_metadata()]
    assert str(copy) == str(error)


@pytest.mark.parametrize("shown", [str, repr])
def test_exhausted_shows_no_metadata(shown):
    """RT-11: `str` and `repr` of the error contain its details but no metadata."""
    assert "gave up after 3 attempts" in shown(exhausted())
    assert "retry-after" not in shown(exhausted())


def raised(error):
    """Raise an error with a cause, as a call does; return it."""
    try:
        raise error from ValueError("the last attempt's")
    except CallError as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [NoConnectionError(grpc.StatusCode.UNAVAILABLE, details="no connection", status="a status"), exhausted()],
    ids=lambda error: type(error).__name__,
)
def test_anew(error):
    """CB-10: `anew()` copies an error with its cause but without its traceback, so it keeps no call alive."""
    error = raised(error)
    assert error.__traceback__ is not None
    anew = error.anew()

    assert anew is not error
    assert type(anew) is type(error)
    assert str(anew) == str(error)
    assert vars(anew) == vars(error)
    assert anew.__cause__ is error.__cause__
    assert (anew.__traceback__, anew.__context__) == (None, None)


def test_no_connection_without_metadata():
    """CH-4: an error without a connection has empty metadata, with the same methods as grpc's own error."""
    error = NoConnectionError(grpc.StatusCode.UNAVAILABLE, status="a status")

    assert [*error.initial_metadata(), *error.trailing_metadata()] == []
