"""The asyncio channel: grpc's interface in front of the pool of connections."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakSet, proxy

import grpc
import grpc.aio

from grpc_backoff.aio.core_connector import connections
from grpc_backoff.aio.environment import CallEnvironment
from grpc_backoff.aio.interceptor_channel import LISTS, InterceptorChannel
from grpc_backoff.aio.listeners import Listeners
from grpc_backoff.aio.loops import clock_of, ended_at_home, is_here
from grpc_backoff.aio.multicallables import MULTICALLABLES, CallingChannel
from grpc_backoff.aio.pending import PendingCalls
from grpc_backoff.aio.pool import Share, pool_for
from grpc_backoff.base.status import ConnectionStatus, State
from grpc_backoff.config.channel_settings import ChannelSettings, Options, read_channel
from grpc_backoff.config.proxies import is_proxied
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.grpcio.aio_private import Polling
from grpc_backoff.grpcio.forks import CoreUse, at_fork, refuse_inherited
from grpc_backoff.grpcio.private import CoreStandIn

if TYPE_CHECKING:
    from grpc_backoff.aio.coroutine_connector import CoroutineConnection
    from grpc_backoff.config.credentials import CredentialsSource
    from grpc_backoff.connection.connector import Connector

    AnyConnector = Connector[CoroutineConnection]
else:
    AnyConnector = CredentialsSource = Any  # for programs that evaluate the annotations of a channel

Interceptors = Sequence[grpc.aio.ClientInterceptor]


_channels: WeakSet[Channel] = WeakSet()
_inherited: list[object] = []
"""A parent's open channels, with their core channels and tasks. They are kept, because freeing them would involve the
core."""


class Channel(CallingChannel, grpc.aio.Channel):
    """A `grpc.aio.Channel` that connects according to gRPC's connection-backoff protocol.

    Channels are created by `insecure_channel` and `secure_channel`. In addition to grpc's own interface, they have
    `connection_status`, `reset_connect_backoff`, `add_listener` and `remove_listener`. A channel belongs to the event
    loop on which it was created: calls and waits on another loop raise `WrongLoopError`. The methods
    `reset_connect_backoff`, `connection_status`, `get_state` and `close` can be used anywhere.
    """

    _multicallables = MULTICALLABLES
    _listeners: Listeners
    _connections: Share

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | CredentialsSource | None,
        options: Options | None,
        compression: grpc.Compression | None,
        interceptors: Interceptors | None,
        *,
        connector: AnyConnector | None = None,
        **settings: Unpack[ChannelSettings],
    ) -> None:
        """Create the channel; see `insecure_channel`. `connector` is for `grpc_backoff.testing.scripted_channel`."""
        setup = read_channel(target, options, settings)
        self._take(setup, credentials, compression, asyncio=True)
        self._polling: Polling | None = Polling.shared()
        self._secure = credentials is not None
        # The interceptor channel never connects, so it needs some credentials, but not those of the source.
        unused: Any = credentials if self._source is None else grpc.ssl_channel_credentials()
        self._interceptor_channel = InterceptorChannel(setup.target, unused, setup.core_options, compression)
        for arity, found in self._interceptor_channel.open(interceptors).items():  # grpc rejects invalid arguments here
            setattr(self, LISTS[arity], found)  # clients append to these lists and replace them, as on grpc's channel
        loop = asyncio.get_event_loop()  # if none runs, the one that grpc has just used for the interceptor channel
        self.loop = self._loop = loop  # the second is the name in grpcio, which others read
        """The event loop that the channel belongs to."""
        home = clock_of(loop)
        self._clock = clock = setup.clock or home
        key = self._key if connector is None and home.keeps_time else None  # SH-1: one clock
        self._pool = pool_for(PoolSetup(setup, clock, key, credentials, compression), loop, connector)
        self.picks = self._pool.setup.picks
        self._listeners = Listeners(setup.listeners, loop)
        self._pending = PendingCalls(setup.target, loop, proxied=is_proxied(setup.target, setup.core_options))
        self._connections = Share(self._pool, self._pending, self._listeners, loop)
        # A pending call keeps the channel alive, and the channel keeps its share alive. A strong reference back to the
        # share would complete a cycle.
        self._pending.pool = proxy(self._connections)
        hooks = None
        if setup.hooks is not None:
            from grpc_backoff.aio.hooks import Hooks  # noqa: PLC0415 - few channels have any

            hooks = Hooks(setup.hooks, setup.target, clock, loop)
        self.calls = CallEnvironment(
            setup, pending=self._pending, hooks=hooks, listeners=self._listeners, clock=clock, loop=loop
        )
        """The environment that the channel's calls share."""
        self._rest: asyncio.Task[None] | None = None
        """Closes what is left to close after `close` was cancelled."""
        self.closing = False
        _channels.add(self)
        if self._source is not None:
            self._source.watch(self._rotate)

    def connection_status(self) -> ConnectionStatus:
        """Return the channel's status: state, attempt, last error, and seconds until the next attempt (CH-11)."""
        return self._connections.full_status()

    def stop_dialling(self) -> None:
        """Leave the connection and stop dialling at once, as a threaded channel's `close` does.

        `close`, which is still needed, is a coroutine, so another attempt may start before it runs.
        """
        self._connections.leave()

    # grpc.aio.Channel

    async def __aenter__(self) -> Self:
        """Return the channel."""
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Close the channel; running calls are cancelled."""
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close the channel. Calls still running or pending after `grace` seconds are cancelled (CB-10).

        This also works on an event loop other than the channel's. If the channel's own loop is not running, no call can
        end there, so there is no grace period. If this is cancelled, the grace period ends, and what is left is
        closed in the background; closing again waits for that.

        Raises:
            ValueError: `grace` is negative.
        """
        if self.closing:
            rest = self._rest
            if rest is not None and is_here(self.loop) and not self.calls.has(asyncio.current_task()):
                await asyncio.shield(rest)
            return
        if grace is not None and grace < 0:
            raise ValueError(f"grace must be non-negative, got {grace}.")
        if self._is_inherited:
            self.closing = True  # its threads and sockets are the parent's
        elif is_here(self.loop):
            await self._close_here(grace)
        else:
            await self._close_elsewhere(grace)

    async def _close_here(self, grace: float | None) -> None:
        self.closing = True
        if self._source is not None:
            self._source.close()
        end = self._clock.now() + (grace or 0.0)
        self.calls.close()
        try:
            if grace:
                await self._pending.emptied(grace)
            else:
                await self._interceptor_channel.close(None)  # first: interceptors that have not begun find it closed
        finally:
            self._connections.leave()
            self._pending.cancel()
            try:
                await self._finish(max(0.0, end - self._clock.now()) or None)
            except asyncio.CancelledError:
                self._rest = Context().run(self.loop.create_task, self._finish(None))
                raise

    _close = close  # other libraries call it by this name of grpcio's

    async def _finish(self, grace: float | None) -> None:
        """End the calls and close what the channel has; harmless if part of it has been done."""
        if self._interceptor_channel.is_open:
            await asyncio.gather(self._interceptor_channel.close(grace), self._connections.end_calls(grace))
        else:
            await self._connections.end_calls(grace)
        await self.calls.closed()
        # Release the poller in the loop's next turn: by then, a program with one channel per request has created its
        # next channel, which needs the poller too.
        self.loop.call_soon(lambda _kept: None, self._polling)
        self._polling = None

    async def _close_elsewhere(self, grace: float | None) -> None:
        if await ended_at_home(self.loop, self.close(grace)):
            return
        self.closing = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and everything on it has ended
            self.calls.close()
            self._connections.leave()
            self._pending.cancel()
        self._rest = Context().run(asyncio.get_running_loop().create_task, self._finish_elsewhere())
        await asyncio.shield(self._rest)  # nothing can be made up for on the channel's own loop

    async def _finish_elsewhere(self) -> None:
        await self._interceptor_channel.close(None)
        with contextlib.suppress(RuntimeError, ValueError):  # tasks of a stopped loop cannot be awaited
            await self._connections.end_calls(None)
        self._polling = None

    def __del__(
        self, is_finalizing: Callable[[], bool] = sys.is_finalizing, warn: Callable[..., object] = warnings.warn
    ) -> None:
        """Stop dialling and warn that `close` was not called (CB-10)."""
        # These are parameters because the interpreter may have cleared this module and asyncio's.
        if self.closing or self._is_inherited:
            return
        if not is_finalizing():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and everything on it has ended
                self.loop.call_soon_threadsafe(self._connections.drop, self._listeners)  # any thread may collect it
        # This comes last, because a program may turn warnings into errors.
        warn(f"unclosed channel to {self.target}", ResourceWarning, source=self, stacklevel=2)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the channel's state; with `try_to_connect`, ask for a connection if there is none."""
        here, wants = is_here(self.loop), try_to_connect and not self.closing
        if wants:
            refuse_inherited(self.target, self._generation)
        if here:
            self._pool.look()
        elif wants and not self.loop.is_running():
            self.refuse_elsewhere()  # a program that polls for READY here would poll for ever
        state = self._connections.state
        if wants and here:
            self._connections.want()
        elif wants:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._connections.want)
        return grpc.ChannelConnectivity[state.name]

    @property
    def _channel(self) -> CoreStandIn:
        return CoreStandIn(self.target, self.get_state)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the channel's state differs from `last_observed_state`."""
        self.refuse_if_closed()
        self.refuse_elsewhere()
        self._pool.look()
        await self._connections.wait_for_state_change(State[last_observed_state.name])

    async def channel_ready(self) -> None:
        """Wait until the channel is READY, connecting if necessary. This has no time limit, so wrap it in a timeout."""
        state = self.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)
            state = self.get_state(try_to_connect=True)

    def leave_alone(self) -> None:
        """Leave the connections to the process that made them; the calls that wait for this one's loop end (FK-1)."""
        self._pool.leave_alone()
        if not self.loop.is_running() and not self.loop.is_closed():  # so the child may run it
            self.calls.close()
            self._pending.cancel()


def _inherit() -> CoreUse:
    """Leave the parent's channels untouched in the child of a fork (FK-1)."""
    found = [channel for channel in _channels if not channel.closing]
    _inherited.extend(found)
    _inherited.extend([connection.leave_alone() for connection in connections])
    for channel in found:
        channel.leave_alone()
    _channels.clear()
    return CoreUse(asyncio=bool(found))


at_fork(_inherit)
