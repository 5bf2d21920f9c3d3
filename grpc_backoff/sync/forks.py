"""What happens to threaded channels in the child of a fork (FK-1, FK-2).

The child has the parent's objects but none of its threads, so grpcio's core no longer answers anything that its threads
would have to answer. So the child touches none of the parent's core channels: each is kept unchanged until the process
ends, and using a channel that was created before the fork raises an error.
"""

from __future__ import annotations

import logging
import os
from typing import Any
from weakref import WeakSet

from grpc_backoff.errors import ForkError
from grpc_backoff.sync.core import CoreConnection
from grpc_backoff.sync.grpcio import forget_channels, is_stirred, survives_forks

__all__ = ["Generation", "check_core", "generation", "note"]

_LOG = logging.getLogger("grpc_backoff")


class Generation:
    """The period between two forks, in one line of processes; equal only to itself.

    Attributes:
        after_use: whether grpcio's core was in use at the fork with which it began, or at an earlier one.
        doubtful: whether the core was busy at that moment, and no warning was logged yet.
    """

    def __init__(self, *, after_use: bool = False, doubtful: bool = False) -> None:
        """Start a generation; by default one without a fork before."""
        self.after_use = after_use
        self.doubtful = doubtful


_now = Generation()
_connections: WeakSet[CoreConnection] = WeakSet()
_inherited: list[Any] = []
"""The parent's core channels. Freeing one would involve the core."""


def generation() -> Generation:
    """Return the generation of this process's channels; a different one in the child of a fork."""
    return _now


def note(connection: CoreConnection) -> None:
    """Track a connection that calls may use, for as long as it lives."""
    _connections.add(connection)


def check_core(target: str) -> None:
    """Reject creating a channel with which grpcio's core would hang, and warn once if it may (FK-2).

    Raises:
        ForkError: a channel of this library was open when this process was forked, or within the second before.
    """
    if _now.after_use and not survives_forks():
        raise ForkError(
            f"the channel to {target} cannot be created in this process: it was forked while its parent had channels "
            "open, or within a second of their close, and grpcio would hang. Set GRPC_ENABLE_FORK_SUPPORT=1 before "
            "Python starts, or close all channels a second before the fork, or start processes with spawn or forkserver"
        )
    if _now.doubtful:
        _now.doubtful = False
        _LOG.warning(
            "process %d was forked while grpcio may have been dialling or shutting down: calls in it can hang or crash "
            "inside grpcio, even with GRPC_ENABLE_FORK_SUPPORT=1; fork before the first channel is created",
            os.getpid(),
        )


def _begin_child() -> None:
    global _now  # noqa: PLW0603 - a process has one
    _inherited.extend(forget_channels())
    at_work = is_stirred()
    _now = Generation(after_use=bool(_inherited) or at_work or _now.after_use, doubtful=at_work)
    for connection in tuple(_connections):
        connection.leave_alone()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
