"""What the connectors of both APIs have in common: how they make the core's channel for each attempt.

The attempt itself is a dial (`core_dial.py`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import grpc

from grpc_backoff.base.status import Failure
from grpc_backoff.config.core_options import (
    ENABLE_RETRIES,
    LOCAL_POOL,
    CoreArguments,
    Options,
    attempt_options,
    core_traits,
    keepalive_options,
)
from grpc_backoff.decide.connections.dial_machine import DialMachine
from grpc_backoff.engine.gate import unheard
from grpc_backoff.engine.spares import SPARES, SpareKey

if TYPE_CHECKING:
    from grpc_backoff.connection.connector import AttemptInFlight, LiveConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.setup import PoolSetup

    class _Dial(AttemptInFlight, LiveConnection, Protocol):
        """An attempt, and the connection that it makes."""


DialT = TypeVar("DialT", bound="_Dial")
OutcomeT = TypeVar("OutcomeT")
ConnectionT = TypeVar("ConnectionT", bound="LiveConnection")
Tell = Callable[[OutcomeT | Failure], None]
"""Hears the outcome of an attempt: its connection, or a `Failure`."""


class SlotConnector(Generic[ConnectionT]):
    """A connector of one slot: it tells the slot's manager of connections after they were made, all at home.

    Attributes:
        last_life, familiar: as in `CallbackConnector`.
        spreads: whether the core makes several connections by itself (PO-5).
        open: the connections that calls may use, or that still have calls.
        lost: called when it is known how a connection has ended.
        redialled: called each time that the core has redialled by itself, with `late` (CB-16).
        closed: called when a connection has taken its last call and is being closed.
    """

    last_life: float | None = math.inf
    familiar = False
    spreads = False
    open: Collection[ConnectionT]

    def __init__(self) -> None:
        """Report to no manager yet."""
        self.lost: Callable[[], None] = unheard
        self.redialled: Callable[..., None] = unheard
        self.closed: Callable[[], None] = unheard

    @abstractmethod
    def connect(self, limit: float, tell: Tell[ConnectionT], /) -> AttemptInFlight:
        """Start one attempt; see `CallbackConnector.connect`."""

    def forget(self) -> None:
        """Report no more, because what hears the reports is not to be kept alive (CB-10)."""
        self.lost = self.redialled = self.closed = unheard

    def retire(self) -> None:
        """Close every connection when its last call ends."""
        for connection in tuple(self.open):
            connection.retire()


class BaseConnector(SlotConnector[DialT]):
    """Makes the attempts to connect to one endpoint.

    Attributes:
        notifies: as in `DialMachine`.
        setup: what its pool dials, how, and when.
        home: where its attempts and connections live.
        machine: the rules for each dial.
        credentials: those for the next attempt.
        traits: what its target and options mean for the core.
        guards: whether the core's next channel is to repeat no calls: it would redial for them, often without showing
            it (CB-16).
        after_failure: whether the last attempt with an outcome failed.
        open: the connections that calls may use.
    """

    notifies = False

    def __init__(self, setup: PoolSetup, endpoint: str, home: Home) -> None:
        """Make every attempt's channel as the setup says for this endpoint; each attempt adds options of its own."""
        super().__init__()
        credentials, policy = setup.credentials, setup.policy
        self.setup = setup
        self.home = home
        self._source = None if isinstance(credentials, grpc.ChannelCredentials) else credentials
        self.credentials = credentials if isinstance(credentials, grpc.ChannelCredentials) else None
        self._arguments = arguments = setup.dialled(endpoint)
        self.machine = DialMachine(policy.idle_timeout, policy.stable_after, policy.backoff.cap, notifies=self.notifies)
        self.traits = core_traits(arguments.target, arguments.options)
        self.spreads = self.traits.spreads
        self._spares = credentials is None and self.traits.shares
        self.guards = False
        self.after_failure = False
        self.open: set[DialT] = set()

    def connect(self, limit: float, tell: Tell[DialT], /) -> AttemptInFlight:
        """Start one attempt; when it ends, `tell` its outcome at home, unless it was abandoned.

        It uses a new channel, which is not used again once its attempt has failed or its connection is lost. After a
        failure, a core channel would dial by itself (CB-1), and only the addresses that it already knows (CH-8).
        """
        if self._source is None:
            return self.dial(limit, tell)
        from grpc_backoff.engine.credentials import ReadingAttempt  # noqa: PLC0415 - few channels have a source

        return ReadingAttempt(self, self._source, limit, tell)

    @abstractmethod
    def dial(self, limit: float, tell: Tell[DialT]) -> DialT:
        """Start one attempt with the credentials that are known."""

    @abstractmethod
    def make_channel(self, arguments: CoreArguments) -> Any:
        """Return a new channel of the core for one attempt."""

    def channel_for(self, limit: float) -> tuple[Any, float | None, SpareKey | None]:
        """Return a channel of the core for an attempt with a time limit of `limit` seconds.

        If it is a spare one (SH-8), the time when its connection was made follows. If it may become one, its key is the
        third; channels with credentials are none, because these are rarely the same object twice.
        """
        target, _, compression = self._arguments
        arguments = CoreArguments(target, self._options_for(limit), compression)
        if not (self.familiar and self._spares) or SPARES.avoids(arguments):
            return self.make_channel(arguments), None, None
        key = SpareKey(self.home, arguments)
        spare = SPARES.take(key)
        if spare is None:
            return self.make_channel(arguments), None, key
        return spare.channel, spare.made, key

    def _options_for(self, limit: float) -> Options:
        """Return the options of a channel that makes one attempt with a time limit of `limit` seconds."""
        timing = attempt_options(self.setup.policy, limit, spreads=self.spreads)
        options, slower = self._arguments.options, self.setup.rarer_pings
        keepalive = () if slower == 1 else keepalive_options(options, slower)
        guarded = ((ENABLE_RETRIES, 0),) if self.guards else ()
        return ((LOCAL_POOL, 1), *timing, *keepalive, *guarded, *options)
