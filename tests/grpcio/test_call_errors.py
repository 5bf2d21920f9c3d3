"""The errors that calls raise, for both APIs: their types, as checkers see them, and as handlers do."""

from __future__ import annotations

import copy
import pickle

import grpc
import grpc.aio
import mypy.api
import pytest

import grpc_backoff
from grpc_backoff import errors
from grpc_backoff.aio.call_errors import NoConnectionError as AsyncioError
from grpc_backoff.sync.call_errors import ForkError as ThreadedForkError
from grpc_backoff.sync.call_errors import NoConnectionError as ThreadedError

HANDLER = """
import grpc
import grpc.aio
import grpc_backoff
import grpc_backoff.aio
from grpc_backoff.errors import RetriesExhaustedError
from grpc_backoff.decide.connections.events import ConnectionStatus

def handle(work: object) -> None:
    try:
        print(work)
    except (grpc_backoff.NoConnectionError, grpc_backoff.ForkError, RetriesExhaustedError) as error:
        code: grpc.StatusCode = error.code()
        details: str | None = error.details()
        debug: str | None = error.debug_error_string()
        print(code, details, debug, error.initial_metadata(), error.trailing_metadata())

def handle_one_api(work: object) -> None:
    try:
        print(work)
    except grpc_backoff.aio.NoConnectionError as error:
        status: ConnectionStatus = error.status
        metadata: grpc.aio.Metadata = error.trailing_metadata()
        print(status, metadata, error.code().name)

def as_grpcs(error: grpc_backoff.RetriesExhaustedError) -> grpc.RpcError:
    return error
"""


def test_types(tmp_path):
    """The names at the top level are `grpc.RpcError`s to mypy, with `code()`, `details()` and the rest."""
    program = tmp_path / "handler.py"
    program.write_text(HANDLER)
    found = mypy.api.run(["--strict", "--config-file=", f"--cache-dir={tmp_path}", str(program)])
    assert found == ("Success: no issues found in 1 source file\n", "", 0)


@pytest.mark.parametrize("name", ["ForkError", "NoConnectionError", "RetriesExhaustedError"])
def test_they_are_grpcs(name):
    """The errors that calls raise are grpc's kind of error and the library's, under both public names."""
    kind = getattr(grpc_backoff, name)
    assert kind is getattr(errors, name)
    assert issubclass(kind, grpc.RpcError)
    assert issubclass(kind, grpc_backoff.GrpcBackoffError)


@pytest.mark.parametrize("kind", [AsyncioError, ThreadedError])
def test_grpcs_methods_come_first(kind):
    """An error of a call answers with grpc's own methods, not with the abstract ones of the public class."""
    error = kind(grpc.StatusCode.UNAVAILABLE, details="no connection", debug_error_string="debug", status=None)
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "no connection")
    assert error.debug_error_string() == "debug"
    assert (tuple(error.initial_metadata()), tuple(error.trailing_metadata())) == ((), ())


@pytest.mark.parametrize("kind", [grpc_backoff.ForkError, ThreadedForkError])
def test_fork_error(kind):
    """FK-1: the error of a channel from before a fork has a code that says that trying again does not help."""
    made = kind("create channels in the child")
    for error in (made, pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert isinstance(error, RuntimeError)
        assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "create channels in the child")
        assert (error.initial_metadata(), error.trailing_metadata()) == ((), ())
        assert error.debug_error_string() == str(error) == "create channels in the child"
