"""What becomes of threaded channels in the child of a fork (FK-1).

The child has the parent's objects and none of its threads. Grpcio's core in there answers nothing any more that its
threads would have to answer. So the child touches no core channel of the parent's: each of them is kept as it is until
the process ends, and whoever uses a channel that was made before the fork is told so.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from grpc_backoff.errors import ForkError
from grpc_backoff.sync.core import CoreConnection
from grpc_backoff.sync.grpcio import forget_channels, is_stirred, survives_forks

__all__ = ["Generation", "check_core", "generation", "note"]


class Generation:
    """Everything between two forks, in one line of processes: equal to itself alone."""


_now = Generation()
_connections: WeakSet[CoreConnection] = WeakSet()
_inherited: list[Any] = []
"""Core channels of the parent's, or None for a core that was at work. To free one would be to ask the core."""


def generation() -> Generation:
    """Return what the channels of this process are made in; another in the child of a fork."""
    return _now


def note(connection: CoreConnection) -> None:
    """Remember a connection that calls may enter, for as long as it lives."""
    _connections.add(connection)


def check_core(target: str) -> None:
    """Refuse to make a channel where grpcio's core would hang with it.

    Raises:
        ForkError: a channel of this library's was open when this process was forked, or a second before.
    """
    if _inherited and not survives_forks():
        raise ForkError(
            f"the channel to {target} cannot be made in this process: it was forked while its parent had channels "
            "open, or within a second of their close, and grpcio would hang. Set GRPC_ENABLE_FORK_SUPPORT=1 before "
            "Python starts, or close all channels a second before the fork, or start processes by spawn or forkserver"
        )


def _begin_child() -> None:
    global _now  # noqa: PLW0603 - a process has one
    _now = Generation()
    _inherited.extend(forget_channels() or [None] * is_stirred())
    for connection in tuple(_connections):
        connection.leave_alone()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
