"""The library's errors: their class tree, and what existing handlers catch."""

from __future__ import annotations

import importlib
import pkgutil
import re

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import errors
from grpc_backoff.aio import NoConnectionError, RetriesExhaustedError
from grpc_backoff.errors import (
    ConfigError,
    GrpcBackoffError,
    IllegalTransition,
    MissingExtra,
    OptionError,
)


def import_all():
    for module in pkgutil.walk_packages(grpc_backoff.__path__, "grpc_backoff."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def tree(kind):
    """Return all descendants of an error, each with its base classes from outside the library."""
    return {
        (child.__name__, frozenset(base.__name__ for base in child.__bases__ if not issubclass(base, GrpcBackoffError)))
        for child in descendants(kind)
    }


def descendants(kind):
    for child in kind.__subclasses__():
        if child.__module__.startswith("grpc_backoff"):
            yield child
            yield from descendants(child)


def test_tree_is_drawn():
    """The tree in the docstring matches the classes: every error, with its other base classes."""
    import_all()
    drawn = {
        (name.rpartition(".")[2], frozenset(part.rpartition(".")[2] for part in re.findall(r"[\w.]+", also or "")))
        for name, also in re.findall(r"[├└]── ([\w.]+)(?: \(also ([\w., ]+)\))?", errors.__doc__)
    }

    assert drawn == tree(GrpcBackoffError)
    assert GrpcBackoffError.__bases__ == (Exception,)


def test_all_listed():
    """The module exports every error that it defines, and the warning."""
    places = {"grpc_backoff.base.base_errors", "grpc_backoff.grpcio.call_errors"}
    defined = {kind.__name__ for kind in descendants(GrpcBackoffError) if kind.__module__ in places} - {"CallError"}

    assert defined | {"GrpcBackoffError", "PolicyWarning"} == set(errors.__all__)
    assert issubclass(errors.PolicyWarning, UserWarning)


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (OptionError, ValueError),
        (ConfigError, ValueError),
        (IllegalTransition, RuntimeError),
        (MissingExtra, ImportError),
        (NoConnectionError, grpc.aio.AioRpcError),
        (NoConnectionError, grpc.RpcError),
        (RetriesExhaustedError, grpc.aio.AioRpcError),
        (RetriesExhaustedError, grpc.RpcError),
    ],
)
def test_caught_by_old_handlers(kind, also):
    """Existing `except` clauses for built-in and grpc errors catch these errors."""
    assert issubclass(kind, also)
    assert issubclass(kind, GrpcBackoffError)
