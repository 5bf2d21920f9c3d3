"""The threaded channel: grpc's interface in front of the pool of connections."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakSet

import grpc

from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.status import ConnectionStatus
from grpc_backoff.base.threads import Running, new_queue
from grpc_backoff.config.channel_settings import ChannelSettings, Options, read_channel
from grpc_backoff.config.proxies import is_proxied
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.grpcio.forks import CoreUse, at_fork, refuse_inherited
from grpc_backoff.grpcio.private import CoreStandIn
from grpc_backoff.grpcio.sync_private import forget_channels, is_single_threaded
from grpc_backoff.sync.conductor import CONDUCTOR
from grpc_backoff.sync.core_connector import connections
from grpc_backoff.sync.environment import CallEnvironment
from grpc_backoff.sync.listeners import Listeners
from grpc_backoff.sync.multicallables import MULTICALLABLES, CallingChannel
from grpc_backoff.sync.pending import PendingCalls
from grpc_backoff.sync.pool import ConnectionPool

if TYPE_CHECKING:
    from grpc_backoff.config.credentials import CredentialsSource
else:
    CredentialsSource = Any  # for programs that evaluate the annotations of a channel

_CLOSES_WITHIN = 0.2
"""How long `close` waits for other threads, in seconds; everything else that it does takes a few milliseconds."""

_channels_calls: WeakSet[CallEnvironment] = WeakSet()
"""The calls of each channel."""
_inherited: list[object] = []
"""The parent's core channels. They are kept, because freeing one would involve the core."""


class Channel(CallingChannel, grpc.Channel):
    """A `grpc.Channel` that connects according to gRPC's connection-backoff protocol.

    Channels are created by `insecure_channel` and `secure_channel`. In addition to grpc's own interface, they have
    `connection_status`, `reset_connect_backoff`, `add_listener` and `remove_listener`. All methods may be called from
    any thread.
    """

    _multicallables = MULTICALLABLES
    _listeners: Listeners

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | CredentialsSource | None,
        options: Options | None,
        compression: grpc.Compression | None,
        **settings: Unpack[ChannelSettings],
    ) -> None:
        """Create the channel; see `insecure_channel`."""
        setup = read_channel(target, options, settings)
        target, core_options = setup.target, setup.core_options
        self._take(setup, credentials, compression)
        self._target = target  # its name in grpcio, which others read
        self.single_threaded = is_single_threaded(core_options)
        clock = setup.clock or CONDUCTOR
        hooks = None
        if setup.hooks is not None:
            from grpc_backoff.sync.hooks import Hooks  # noqa: PLC0415 - few channels have any

            hooks = Hooks(setup.hooks, target, clock.now)  # first: it may refuse one
        self._conductor = conductor = CONDUCTOR
        self._ending = threading.Lock()
        self._listeners = Listeners(setup.listeners, target)
        pending = PendingCalls(target, conductor.post, proxied=is_proxied(target, core_options))
        pool_setup = PoolSetup(setup, clock, self._key, credentials, compression)
        self._connections = self._pool = ConnectionPool(pool_setup, pending, self._listeners, conductor)
        pending.pool = self._pool
        self.picks = self._pool.setup.picks
        self.times_calls = setup.pooling.quiet_after > 0  # LV-2: its connections note when their calls begin
        self.calls = CallEnvironment(
            setup, pending=pending, hooks=hooks, listeners=self._listeners, conductor=conductor, clock=clock
        )
        _channels_calls.add(self.calls)
        self.closing = False
        if self._source is not None:
            self._source.watch(self._rotate)

    def connection_status(self) -> ConnectionStatus:
        """Return the channel's status: state, attempt, last error, and seconds until the next attempt (CH-11)."""
        return replace(self._pool.status(), connections=self._pool.slots())

    # grpc.Channel

    def __enter__(self) -> Self:
        """Return the channel."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the channel; running calls are cancelled."""
        self.close()

    def close(self) -> None:
        """Close the channel within a quarter of a second; running and pending calls are cancelled (CB-10)."""
        with self._ending:
            if self.closing:
                return
            self.closing = True
        if self._is_inherited:
            return  # its threads and sockets belong to the parent
        if self._source is not None:
            self._source.close()
        self.calls.close()
        end = monotonic() + _CLOSES_WITHIN
        for closing in self._end(_CLOSES_WITHIN / 2):
            closing.join(max(0.0, end - monotonic()))
        self._listeners.close()
        self._listeners.wait(max(0.0, end - monotonic()))

    def _end(self, within: float) -> list[Running]:
        """Make the conductor end everything; return what is still closing connections."""
        closing: list[Running] = []
        ended: SimpleQueue[None] = new_queue()

        def end() -> None:
            self._pool.close()
            closing.extend(self._pool.close_connections())
            ended.put(None)

        if self._conductor.is_here():
            end()
        else:
            self._conductor.post(end)
            with contextlib.suppress(Empty):
                self._conductor.take(ended, within)
        return closing

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Stop dialling and warn that `close` was not called (CB-10); running calls continue."""
        # `is_finalizing` is a parameter because the interpreter may have cleared this module.
        if self.closing or is_finalizing() or self._is_inherited:
            return
        self._conductor.post(partial(self._pool.drop, self._listeners))
        # This comes last, because a program may turn warnings into errors.
        warnings.warn(f"unclosed channel to {self.target}", ResourceWarning, source=self, stacklevel=2)

    def subscribe(
        self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool | None = False
    ) -> None:
        """Call `callback` with the channel's current state and with each new one, on one of the channel's threads.

        With `try_to_connect`, ask for a connection once, if there is none.

        Raises:
            RuntimeError: with `try_to_connect`, no thread can be started to make the connection, as in grpc.
        """
        if self.closing:
            return
        refuse_inherited(self.target, self._generation)
        self._listeners.subscribe(callback, lambda: self._pool.state)
        if try_to_connect:
            self._ask()

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Remove a callback; harmless if it is not registered."""
        self._listeners.unsubscribe(callback)

    def _ask(self) -> None:
        self._conductor.require()
        self._conductor.post(self._pool.want)

    # Other libraries read what follows on grpcio's channels (CH-1).

    def _look(self, try_to_connect: bool) -> grpc.ChannelConnectivity:
        self.refuse()
        if try_to_connect:
            self._ask()
        return grpc.ChannelConnectivity[self._pool.state.name]

    @property
    def _channel(self) -> CoreStandIn:
        return CoreStandIn(self.target, self._look)

    @property
    def _connectivity_state(self) -> SimpleNamespace:
        return SimpleNamespace(connectivity=grpc.ChannelConnectivity[self._pool.state.name])

    _close = close


def _inherit() -> CoreUse:
    """Let the child of a fork leave the parent's core channels alone, and keep each until the process ends (FK-1).

    Calls that have no attempt in flight end in the child; as for the others, grpcio ends them if its own fork support
    is on.
    """
    for calls in tuple(_channels_calls):
        calls.abandon()
    _inherited.extend(forget_channels())
    for connection in tuple(connections):
        connection.leave_alone()
    return CoreUse(threaded=bool(_inherited))


at_fork(_inherit)
