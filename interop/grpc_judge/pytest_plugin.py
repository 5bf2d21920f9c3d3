"""Fixtures that fail in front of any gRPC client. pytest loads this module in every run, so it imports late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from grpc_judge.chaos import Front, Kit, Server
    from grpc_judge.outage import Outage


@pytest.fixture
def grpc_chaos() -> Iterator[Kit]:
    """Start servers and fronts that end with the test, however it ends."""
    from grpc_judge.chaos import Kit  # noqa: PLC0415 - most runs do not use it

    with Kit() as kit:
        yield kit


@pytest.fixture
def flaky_grpc(grpc_chaos: Kit) -> Server:
    """Return a gRPC server that works until `play` gives it a script of failures."""
    return grpc_chaos.server()


@pytest.fixture
def grpc_port(grpc_chaos: Kit) -> Server:
    """Return a gRPC server whose port refuses connections until `play` gives it a script, such as `Working()`."""
    from grpc_judge.flaky import Refuse  # noqa: PLC0415 - most runs do not use it

    return grpc_chaos.server(Refuse())


@pytest.fixture
def grpc_front(grpc_chaos: Kit) -> Front:
    """Return a front that refuses connections until `forward` puts it before a server of the test."""
    return grpc_chaos.front()


@pytest.fixture
def grpc_outage() -> Outage:
    """Return an outage for channels of `grpc_backoff.aio`, on a clock that the test moves."""
    from grpc_judge.outage import Outage  # noqa: PLC0415 - most runs do not use it

    return Outage()
