"""The errors of failed calls on both APIs: their types, contents, copies, and references, which must keep no call."""

from __future__ import annotations

import copy
import pickle

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import ConnectionStatus, Failure, Reason, Stage, State, aio
from grpc_backoff.aio import call_errors as asyncio_errors
from grpc_backoff.grpcio.aio_private import anew
from grpc_backoff.sync import call_errors as threaded_errors

CODE = grpc.StatusCode
STATUS = ConnectionStatus(
    state=State.TRANSIENT_FAILURE,
    attempt=3,
    in_flight=False,
    last_error=Failure(Stage.TCP, "refused"),
    next_attempt_in=1.5,
    ready_since=None,
    made=0,
)
INITIAL = [("server", "a")]
TRAILING = [("retry-after", "5"), ("x-bin", b"\x00")]
DETAILS = "busy; gave up after 3 attempts in 1.5 s: the retry budget is used up"
METADATA = {asyncio_errors: lambda pairs: grpc.aio.Metadata(*pairs), threaded_errors: tuple}
MODULES = pytest.mark.parametrize("module", METADATA, ids=["asyncio", "threads"])


def no_connection(module):
    return module.NoConnectionError(CODE.UNAVAILABLE, details="no connection", status=STATUS)


def exhausted(module):
    given = [METADATA[module](pairs) for pairs in (INITIAL, TRAILING)]
    account = {"attempts": 3, "took": 1.5, "reason": Reason.BUDGET, "wait": 2.0, "left": 0.5}
    return module.RetriesExhaustedError(CODE.RESOURCE_EXHAUSTED, *given, DETAILS, "UNKNOWN:busy", **account)


ERRORS = pytest.mark.parametrize("make", [no_connection, exhausted])


def contents(error):
    """Return what an error's methods report, and its own attributes."""
    metadata = [[tuple(pair) for pair in pairs] for pairs in (error.initial_metadata(), error.trailing_metadata())]
    own = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return type(error), str(error), error.code(), error.details(), error.debug_error_string(), metadata, own


@ERRORS
def test_threaded_errors_are_calls(make):
    """TH-1: a threaded error is an RpcError, a Call, a Future, and of grpc's classes for all kinds of calls.

    Programs catch `_MultiThreadedRendezvous` while they read a stream.
    """
    error = make(threaded_errors)
    assert isinstance(error, grpc._channel._MultiThreadedRendezvous)
    assert (error.is_active(), error.time_remaining(), error.add_callback(print)) == (False, None, False)
    kinds = grpc.RpcError, grpc.Call, grpc.Future, grpc._channel._InactiveRpcError, grpc_backoff.GrpcBackoffError
    assert all(isinstance(error, kind) for kind in kinds)
    assert (error.done(), error.cancelled(), error.running(), error.exception()) == (True, False, False, error)
    with pytest.raises(type(error)):
        error.result()


@pytest.mark.parametrize("name", ["NoConnectionError", "RetriesExhaustedError"])
def test_one_name_for_both_apis(name):
    """TH-1: the error classes in `grpc_backoff` itself are base classes for both the asyncio and the threaded API."""
    base = getattr(grpc_backoff, name)
    assert issubclass(getattr(aio, name), base)
    assert issubclass(getattr(threaded_errors, name), base)


@MODULES
def test_exhausted(module):
    """RT-6: the error has the last attempt's outcome, the number of attempts, the time taken and why retries ended."""
    error = exhausted(module)
    assert (error.attempts, error.took, error.reason) == (3, 1.5, Reason.BUDGET)
    assert contents(error)[2:6] == (CODE.RESOURCE_EXHAUSTED, DETAILS, "UNKNOWN:busy", [INITIAL, TRAILING])
    least = module.RetriesExhaustedError(CODE.ABORTED)
    assert (least.attempts, least.took, least.reason) == (1, 0.0, Reason.ATTEMPTS)


@MODULES
@pytest.mark.parametrize("shown", [str, repr])
def test_exhausted_shows_no_metadata(module, shown):
    """RT-11: `str` and `repr` of the error contain its details but no metadata."""
    assert "gave up after 3 attempts" in shown(exhausted(module))
    assert "retry-after" not in shown(exhausted(module))


@MODULES
def test_no_connection(module):
    """CH-4: an error without a connection has the channel's status, and empty metadata, not None."""
    error = no_connection(module)
    assert error.status == STATUS
    assert contents(error)[2:6] == (CODE.UNAVAILABLE, "no connection", None, [[], []])


@MODULES
@ERRORS
@pytest.mark.parametrize("travel", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_they_travel(module, make, travel):
    """CH-4, RT-6: errors can be pickled and copied without loss, unlike grpc's own."""
    assert contents(travel(make(module))) == contents(make(module))


def raised(error):
    """Raise an error with a cause, as a call does; return it."""
    try:
        raise error from ValueError("the last attempt's")
    except grpc.RpcError as caught:
        return caught


@ERRORS
def test_anew(make):
    """CB-10: `anew()` copies an error with its cause but without its traceback, so it keeps no call alive."""
    error = raised(make(asyncio_errors))
    assert error.__traceback__ is not None
    fresh = anew(error)
    assert fresh is not error
    assert vars(fresh) == vars(error)
    assert contents(fresh) == contents(error)
    assert fresh.__cause__ is error.__cause__
    assert (fresh.__traceback__, fresh.__context__) == (None, None)
