"""How channels behave in the child of a fork (FK-1, FK-2).

The child has the parent's objects but none of its threads, so nothing in grpcio's core that depends on those threads
works any more. A channel that was created before the fork is useless in the child. Whether a new one works depends on
which channels were open at the fork, and on grpcio's own support for forks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.logs import Log
from grpc_backoff.base.process import after_fork, notice_fork
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.grpcio.call_errors import ForkError
from grpc_backoff.grpcio.private import cygrpc

_LOG = Log("grpc_backoff")


class CoreUse(NamedTuple):
    """How the channels of one API were using grpcio's core at a fork.

    Attributes:
        threaded: whether the core was in use by threaded channels.
        asyncio: whether it was in use by asyncio channels, whose poller keeps grpcio from preparing for the fork.
    """

    threaded: bool = False
    asyncio: bool = False


class Generation:
    """The time from one fork to the next, in the process that was forked; equal only to itself.

    Attributes:
        after_use: whether grpcio's core was in use at the fork that began this generation, or at an earlier one.
        after_asyncio: whether asyncio channels were open at one of these forks.
        doubtful: whether the core may have been busy at that fork, and no warning has been logged yet.
        over: whether this process is the child of a later fork, as far as it has been noticed.
    """

    def __init__(
        self, *, after_use: bool = False, after_asyncio: bool = False, doubtful: bool = False, over: bool = False
    ) -> None:
        self.after_use = after_use
        self.after_asyncio = after_asyncio
        self.doubtful = doubtful
        self.over = over

    def is_over(self, notice_fork: Callable[[], object] = notice_fork) -> bool:
        """Return whether this process is the child of a later fork.

        `notice_fork` is always the default; finalizers may ask this after the interpreter has cleared the modules.
        """
        notice_fork()
        return self.over


_now = Generation()
_inherit: list[Callable[[], CoreUse]] = []
_stirred = -math.inf
"""When the core was last asked to create or close a channel, in seconds on `time.monotonic`."""
_SETTLES_WITHIN = 0.9
"""How long the core's threads may be busy after a channel was created or closed, in seconds; after the last close, they
shut down the core. The core's last channel is closed up to a tenth of a second after the program's."""


def generation() -> Generation:
    """Return the current generation of channels; the child of a fork has a different one."""
    notice_fork()
    return _now


def at_fork(inherit: Callable[[], CoreUse]) -> None:
    """Register a function that runs in the child of each fork and returns how the parent's channels used the core."""
    _inherit.append(inherit)


def core_stirred() -> None:
    """Record that the core was asked to create or close a channel, so its own threads may be busy for a while."""
    global _stirred  # noqa: PLW0603 - a process has one core
    _stirred = monotonic()


def survives_forks() -> bool:
    """Return whether grpcio's own support for forks is turned on."""
    ask = getattr(cygrpc, "is_fork_support_enabled", None)
    return ask is not None and bool(ask())


def refuse_inherited(target: str, made_in: Generation, kind: type[ForkError] = ForkError) -> None:
    """Reject the use of a channel that was created before a fork, with an error of this kind.

    Raises:
        ForkError: the channel was created before this process was forked.
    """
    if made_in.is_over():
        raise kind(
            f"the channel to {target} was created before a fork, and belongs to the process that created it: create "
            "channels in the child, after the fork"
        )


def check_core(target: str, *, asyncio: bool = False) -> Generation:
    """Check that grpcio's core can be used in this process (FK-1); warn once if it might hang or crash (FK-2).

    Returns the current generation of channels.

    Raises:
        ForkError: the core could hang or crash, because one of this library's channels was open when this process was
            forked, or less than a second earlier.
    """
    now = generation()
    if asyncio and now.after_asyncio:
        raise ForkError(
            f"the asyncio channel to {target} cannot be created in this process: it was forked while its parent had "
            "asyncio channels open, and grpcio would hang or crash, even with GRPC_ENABLE_FORK_SUPPORT=1. Close all "
            "asyncio channels before the fork, or start processes with spawn or forkserver"
        )
    if (now.after_use or now.after_asyncio) and not survives_forks():
        raise ForkError(
            f"the channel to {target} cannot be created in this process: it was forked while its parent had channels "
            "open, or had closed them less than a second before, and grpcio could hang. Set "
            "GRPC_ENABLE_FORK_SUPPORT=1 before Python starts, or close all channels a second before the fork, or start "
            "processes with spawn or forkserver"
        )
    if now.doubtful:
        now.doubtful = False
        _LOG.warning(
            "process %d was forked while grpcio may have been dialling or shutting down: calls in it can hang or crash "
            "inside grpcio, even with GRPC_ENABLE_FORK_SUPPORT=1; fork before the first channel is created",
            os.getpid(),
        )
    return now


def _begin_child() -> None:
    global _now
    at_work = monotonic() - _stirred < _SETTLES_WITHIN
    before, _now = _now, Generation(doubtful=at_work)  # first, so that what is freed below counts as inherited
    before.over = True
    uses = [inherit() for inherit in _inherit]
    _now.after_use = before.after_use or at_work or any(use.threaded for use in uses)
    _now.after_asyncio = before.after_asyncio or any(use.asyncio for use in uses)


after_fork(_begin_child)
