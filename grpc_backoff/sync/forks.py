"""What becomes of threaded channels in the child of a fork (FK-1, FK-2).

The child has the parent's objects and none of its threads. Grpcio's core in there answers nothing any more that its
threads would have to answer. So the child touches no core channel of the parent's: each of them is kept as it is until
the process ends, and whoever uses a channel that was made before the fork is told so.
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
    """Everything between two forks, in one line of processes: equal to itself alone.

    Attributes:
        after_use: whether grpcio's core was in use at the fork with which it began, or at one before.
        doubtful: whether the core was at work at that moment, and nobody has been warned of it.
    """

    def __init__(self, *, after_use: bool = False, doubtful: bool = False) -> None:
        """Begin; by default without any fork before."""
        self.after_use = after_use
        self.doubtful = doubtful


_now = Generation()
_connections: WeakSet[CoreConnection] = WeakSet()
_inherited: list[Any] = []
"""Core channels of the parent's. To free one would be to ask the core for something."""


def generation() -> Generation:
    """Return what the channels of this process are made in; another in the child of a fork."""
    return _now


def note(connection: CoreConnection) -> None:
    """Remember a connection that calls may enter, for as long as it lives."""
    _connections.add(connection)


def check_core(target: str) -> None:
    """Refuse to make a channel where grpcio's core would hang with it, and warn once where it may (FK-2).

    Raises:
        ForkError: a channel of this library's was open when this process was forked, or a second before.
    """
    if _now.after_use and not survives_forks():
        raise ForkError(
            f"the channel to {target} cannot be made in this process: it was forked while its parent had channels "
            "open, or within a second of their close, and grpcio would hang. Set GRPC_ENABLE_FORK_SUPPORT=1 before "
            "Python starts, or close all channels a second before the fork, or start processes by spawn or forkserver"
        )
    if _now.doubtful:
        _now.doubtful = False
        _LOG.warning(
            "process %d was forked while grpcio may have been dialling or shutting down: calls in it can hang or crash "
            "inside grpcio, also with GRPC_ENABLE_FORK_SUPPORT=1; fork before the first channel is made",
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
