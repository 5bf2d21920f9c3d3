"""The errors on threaded channels: their types, pickling and copying."""

from __future__ import annotations

import copy
import pickle

import grpc
import pytest

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.calls.events import Reason
from grpc_backoff.connection.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.sync.errors import NoConnectionError, RetriesExhaustedError

STATUS = ConnectionStatus(
    state=State.TRANSIENT_FAILURE,
    attempt=3,
    in_flight=False,
    last_error=Failure(Stage.TCP, "refused"),
    next_attempt_in=1.5,
    ready_since=None,
    made=0,
)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
ERRORS = [
    NoConnectionError(UNAVAILABLE, details="no connection", status=STATUS),
    RetriesExhaustedError(
        UNAVAILABLE, (("first", "1"),), (("last", "2"),), "gave up", "debug", 3, 1.5, Reason.DEADLINE, 2.0, 0.5
    ),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_they_are(error):
    """TH-1: an error is an RpcError, a Call, a Future, grpc's error for blocking calls, and this library's own type."""
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
    assert issubclass(globals()[name], base)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("travel", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_they_travel(error, travel):
    """TH-1: errors can be pickled and copied without loss, unlike grpc's own."""
    arrived = travel(error)
    assert type(arrived) is type(error)
    assert arrived._status() == error._status()
    ours = set(vars(error)) - {"_state"}
    assert ours
    assert {name: getattr(arrived, name) for name in ours} == {name: getattr(error, name) for name in ours}
    assert str(arrived) == str(error)
