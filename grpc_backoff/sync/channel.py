"""The threaded channel: grpc's interface outside, the connection manager inside."""

from __future__ import annotations

import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from grpc_backoff.channel.factories import Factories
from grpc_backoff.channel.method import retrying
from grpc_backoff.channel.settings import ChannelSettings, Options, read_channel
from grpc_backoff.config.arguments import Listener, check_listener
from grpc_backoff.config.target import shown_target
from grpc_backoff.connection.events import ConnectionStatus
from grpc_backoff.connection.machine import Machine
from grpc_backoff.errors import ForkError
from grpc_backoff.sharing.key import key_of
from grpc_backoff.sync import forks
from grpc_backoff.sync.calls import Calls
from grpc_backoff.sync.conductor import CONDUCTOR
from grpc_backoff.sync.core import CoreConnection, CoreConnector
from grpc_backoff.sync.grpcio import CLOSED_TEXT, is_single_threaded
from grpc_backoff.sync.hooks import Hooks
from grpc_backoff.sync.listeners import Listeners
from grpc_backoff.sync.manager import ConnectionManager
from grpc_backoff.sync.multicallables import MULTICALLABLES
from grpc_backoff.sync.pending import PendingCalls

__all__ = ["Channel", "Options", "insecure_channel", "retrying", "secure_channel"]

_CLOSES_WITHIN = 0.2
"""How long `close` waits for other threads, in seconds: the rest of it takes a few milliseconds."""
_CHANCE = random.SystemRandom()
"""Where jitter comes from unless a channel is given a generator; without a state that a fork could copy (CB-11)."""


class Channel(Factories, grpc.Channel):
    """A `grpc.Channel` that makes its connections by gRPC's connection-backoff protocol.

    Made by `insecure_channel` and `secure_channel`. Beside grpc's own interface it has `connection_status`,
    `reset_connect_backoff`, `add_listener` and `remove_listener`. All of it may be used from any thread.
    """

    _multicallables = MULTICALLABLES
    closing = True  # until the constructor is through

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        options: Options | None,
        compression: grpc.Compression | None,
        **settings: Unpack[ChannelSettings],
    ) -> None:
        """See `insecure_channel`."""
        setup = read_channel(target, options, settings)
        target, policy, core_options = setup.target, setup.policy, setup.core_options
        forks.check_core(target)
        self.call_policies = setup.call_policies
        """How the channel's calls are retried, by method."""
        self.policy = policy
        """How the channel connects."""
        self.policy_values = setup.policy_values
        """The policy's values by their names, each with where it came from (BP-3)."""
        self.target = target
        self.single_threaded = is_single_threaded(core_options)
        shares = setup.clock is None and setup.rng is None  # SH-1
        key = key_of(target, credentials, policy, core_options, compression) if shares else None
        clock, rng = setup.clock or CONDUCTOR, setup.rng or _CHANCE
        hooks = Hooks(setup.hooks, target, clock.now)
        self._generation = forks.generation()
        self._conductor = CONDUCTOR
        self._ending = threading.Lock()
        self._listeners = Listeners(setup.listeners, target)
        pending = PendingCalls(shown_target(target), self._conductor.post)
        self._connector = CoreConnector(target, credentials, core_options, compression, policy, self._conductor)
        self._manager: ConnectionManager[CoreConnection] = ConnectionManager(
            Machine(target, policy),
            self._connector,
            pending,
            self._listeners,
            conductor=self._conductor,
            clock=clock,
            rng=rng,
            key=key,
        )
        pending.manager = self._manager
        self._connector.made = forks.note
        self._connector.lost = self._manager.look
        self._connector.redialled = self._manager.redialled
        self.calls = Calls(
            setup,
            pending=pending,
            hooks=hooks,
            listeners=self._listeners,
            conductor=self._conductor,
            now=clock.now,
            rng=rng,
        )
        """What the channel's calls share."""
        self.closing = False

    # What grpc has not.

    def connection_status(self) -> ConnectionStatus:
        """Return what the channel is doing: state, attempt, last error, time to the next attempt (CH-11)."""
        return self._manager.status()

    def reset_connect_backoff(self) -> None:
        """Forget the backoff: a sleeping channel dials at once, and the next gap is INITIAL_BACKOFF again (CB-9).

        For when something else knows that the network or the server is back. Safe in every state, from any thread,
        any number of times; after `close` it does nothing.
        """
        if not self.closing and not self._is_inherited:
            self._conductor.post(self._manager.reset)

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called with every event of the connection and of retried calls from now on.

        It is called on a thread of the channel's own. One that blocks keeps later events from this channel's listeners,
        and nothing else. What it raises is logged and harms nothing (CH-11). OptionError if it is none.
        """
        check_listener("listener", listener)
        self._listeners.given.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Take a listener away again; ValueError if it is not there."""
        self._listeners.given.remove(listener)

    # grpc.Channel

    def __enter__(self) -> Self:
        """Return the channel."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the channel; running calls are cancelled."""
        self.close()

    def close(self) -> None:
        """Close for good, within a quarter of a second: calls that run or wait are cancelled (CB-10)."""
        with self._ending:
            if self.closing:
                return
            self.closing = True
        if self._is_inherited:
            return  # what it had are the parent's threads and sockets
        self.calls.close()
        end = time.monotonic() + _CLOSES_WITHIN
        for thread in self._end(_CLOSES_WITHIN / 2):
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        self._listeners.close()
        self._listeners.wait(max(0.0, end - time.monotonic()))

    def _end(self, within: float) -> list[threading.Thread]:
        """Have the conductor end everything; return the threads that still close connections."""
        closing: list[threading.Thread] = []
        ended = threading.Event()

        def end() -> None:
            self._manager.close()
            closing.extend(self._connector.close())
            ended.set()

        if self._conductor.is_here() or self._conductor.is_stopped():
            end()
        else:
            self._conductor.post(end)
            ended.wait(within)
        return closing

    def __del__(self) -> None:
        """Stop dialling, and say that `close` was forgotten (CB-10); calls that run go on."""
        if self.closing or self._is_inherited or sys.is_finalizing():
            return
        self._conductor.post(_dropping(self._manager, self._connector, self._listeners))
        # Last: a program may have warnings raised as errors.
        warnings.warn(f"unclosed channel to {self.target}", ResourceWarning, source=self, stacklevel=2)

    def subscribe(
        self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool | None = False
    ) -> None:
        """Have `callback` called with the channel's state now and with each that follows, on a thread of the channel's.

        With `try_to_connect`, ask for a connection, once, if there is none.
        """
        if self.closing:
            return
        self._refuse_inherited()
        self._listeners.subscribe(callback, lambda: self._manager.state)
        if try_to_connect:
            self._conductor.post(self._manager.want)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Take a callback away again; harmless when it is not there."""
        self._listeners.unsubscribe(callback)

    # What calls ask.

    def connection(self) -> CoreConnection | None:
        """Return the connection that calls may enter, as far as is known; None if there is none."""
        return None if self.closing or self._is_inherited else self._manager.connection

    def refuse(self) -> None:
        """Refuse a call on a channel that is closed, by grpcio's ValueError, or that was made before a fork."""
        if self.closing:
            raise ValueError(CLOSED_TEXT)
        self._refuse_inherited()

    @property
    def _is_inherited(self) -> bool:
        return self._generation is not forks.generation()

    def _refuse_inherited(self) -> None:
        if self._is_inherited:
            raise ForkError(
                f"the channel to {self.target} was made before a fork, and the process that made it uses it: make "
                "channels in the child, after the fork"
            )


def _dropping(manager: Any, connector: CoreConnector, listeners: Listeners) -> Callable[[], None]:
    """Return what ends a channel that nobody has any more."""

    def drop() -> None:
        manager.close()
        connector.retire()
        listeners.close()

    return drop


def insecure_channel(
    target: str,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel without TLS, as `grpc.insecure_channel` does.

    Args:
        target: the server's address, as for grpc. A URL, or a port above 65535, is refused: no core can dial it.
        options: channel options; those that set the backoff are listed in the README.
        compression: the compression of the channel's calls, as for grpc.
        settings: this library's own, by keyword: `policy`, `config`, `listeners`, `rng`, `clock`, `retry`,
            `retry_budget` and `retry_hooks`, see `ChannelSettings`.

    Raises:
        grpc_backoff.OptionError: a `ValueError` that names the option, its value and what was expected (CH-10).
        grpc_backoff.ConfigError: a `ValueError` that names the file, the key, the value and what was expected (BP-4).
        grpc_backoff.errors.ForkError: the process was forked with channels open, and grpcio would hang (FK-1).
    """
    return Channel(target, None, options, compression, **settings)


def secure_channel(
    target: str,
    credentials: grpc.ChannelCredentials,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel with credentials, as `grpc.secure_channel` does.

    Args:
        target: the server's address, as for grpc. A URL, or a port above 65535, is refused: no core can dial it.
        credentials: as for grpc.
        options: channel options; those that set the backoff are listed in the README.
        compression: the compression of the channel's calls, as for grpc.
        settings: this library's own, by keyword: `policy`, `config`, `listeners`, `rng`, `clock`, `retry`,
            `retry_budget` and `retry_hooks`, see `ChannelSettings`.

    Raises:
        grpc_backoff.OptionError: a `ValueError` that names the option, its value and what was expected (CH-10).
        grpc_backoff.ConfigError: a `ValueError` that names the file, the key, the value and what was expected (BP-4).
        grpc_backoff.errors.ForkError: the process was forked with channels open, and grpcio would hang (FK-1).
    """
    if not isinstance(credentials, grpc.ChannelCredentials):  # None would make a channel without TLS
        raise TypeError(f"credentials={type(credentials).__name__}: expected grpc.ChannelCredentials")
    return Channel(target, credentials, options, compression, **settings)
