"""What the connectors of both APIs have in common: with what each attempt's channel of grpcio's core is made."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import grpc

from grpc_backoff.base.record import NamedTuple, record
from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.config.core_options import (
    LOCAL_POOL,
    attempt_options,
    first_values,
    keepalive_options,
    resolver_configures,
    spreads_calls,
)
from grpc_backoff.config.target import core_target
from grpc_backoff.decide.connections.dial_machine import DialMachine
from grpc_backoff.decide.connections.dial_texts import MORE_THAN_THE_RETRY_BUFFER
from grpc_backoff.engine.spares import SPARES
from grpc_backoff.policy.connect import ConnectPolicy

if TYPE_CHECKING:
    from grpc_backoff.base.stepping import Cancellable
    from grpc_backoff.config.credentials import CredentialsSource
    from grpc_backoff.connection.connector import AttemptInFlight, LiveConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.spares import Key

    class _Dial(AttemptInFlight, LiveConnection, Protocol):
        """An attempt, and the connection that it makes."""


_LOG = logging.getLogger(__name__)
Options = Sequence[tuple[str, object]]
DialT = TypeVar("DialT", bound="_Dial")
OutcomeT = TypeVar("OutcomeT")
MadeWith = tuple[str, Options, grpc.Compression | None]
"""A target, options and a compression, for a channel of the core."""
ConnectionT = TypeVar("ConnectionT", bound="LiveConnection")
Tell = Callable[[OutcomeT | Failure], None]
"""Hears the outcome of an attempt: its connection, or a `Failure`."""

_ENABLE_RETRIES = "grpc.enable_retries"
_MOST_DERIVED = 256
"""The maximum number of cached entries, each with the values derived from one target and its options."""


@record
class Derived(NamedTuple):
    """What a connector derives from its target and options.

    Attributes:
        resolver_configures: the result of the function of that name.
        core_target: the target for the core.
        spreads: whether the core makes several connections by itself (PO-5).
        question: the request with which the core is asked why a dial failed.
        pings: whether connections ping at all.
        repeats: whether the core repeats calls that were not sent, and no others.
        may_be_spare: whether its channels may be spare ones, as far as this says.
    """

    resolver_configures: bool
    core_target: str
    spreads: bool
    question: bytes
    pings: bool
    repeats: bool
    may_be_spare: bool


@lru_cache(_MOST_DERIVED)
def _derived(target: str, options: Options) -> Derived:
    """Return what follows from a target and options; cached for programs that create a channel for each request."""
    named = first_values(options)
    configures = resolver_configures(target, named)
    dialled = target if configures else core_target(target)
    question = MORE_THAN_THE_RETRY_BUFFER if "grpc.service_config" in named else b""
    pings, config = keepalive_options(options, 1) != (), named.get("grpc.service_config", "")
    policies = configures or b"retryPolicy" in (config if isinstance(config, bytes) else str(config).encode())
    repeats = bool(named.get(_ENABLE_RETRIES, True)) and not policies  # its retries by policy must stay
    spreads = spreads_calls(target, named)
    may_be_spare = not (spreads or named.get(LOCAL_POOL))
    return Derived(configures, dialled, spreads, question, pings, repeats, may_be_spare)


class Keepalive:
    """How often the connections of a channel ping their servers (CH-8).

    The core slows down by itself when a server complains, but only on the same channel of the core (gRFC A8).
    """

    slower = 1
    """How many times rarer the pings of the next connection are than the options say."""


class Reporting:
    """A connection that reports how its calls ended; one that a program supplies does not.

    Attributes:
        answered: called when the server has first answered a call (CB-7).
        unanswered: called when this side has ended a call, with the times when it began and when anything last arrived
            from the peer, in seconds on the channel's clock (LV-2).
    """

    answered: Callable[[], None]
    unanswered: Callable[[float, float], None]


def unheard(*_: object, **__: object) -> None:
    """Ignore a report, because nothing needs it."""


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
    """Makes the attempts to connect to one target.

    Attributes:
        home: where its attempts and connections live.
        policy: the channel's connect policy.
        machine: the rules for each dial.
        credentials: those for the next attempt.
        derived: what follows from its target and options.
        guards: whether the core's next channel is to repeat no calls by itself (CB-16).
        after_failure: whether the last attempt with an outcome failed.
        open: the connections that calls may use.
        keepalive: how often its connections ping.
        made: called with each new connection.
    """

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | CredentialsSource | None,
        options: Options,
        compression: grpc.Compression | None,
        policy: ConnectPolicy,
        *,
        home: Home,
        notifies: bool = False,
    ) -> None:
        """Make every attempt's channel with these arguments; `options` are grpcio's own."""
        super().__init__()
        self.home = home
        self._source = None if isinstance(credentials, grpc.ChannelCredentials) else credentials
        self.credentials = credentials if isinstance(credentials, grpc.ChannelCredentials) else None
        self._target = target
        self._options = tuple(options)
        self._compression = compression
        self.policy = policy
        self.machine = DialMachine(policy.idle_timeout, policy.stable_after, policy.backoff.cap, notifies=notifies)
        try:
            self.derived = _derived(target, self._options)
        except TypeError:  # the value of an option is not hashable
            self.derived = _derived.__wrapped__(target, self._options)._replace(may_be_spare=False)
        self.spreads = self.derived.spreads
        self._spares = credentials is None and self.derived.may_be_spare
        self.guards = False
        self.after_failure = False
        self.open: set[DialT] = set()
        self.keepalive = Keepalive()
        self.made: Callable[[DialT], object] = unheard

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
    def make_channel(self, made_with: MadeWith) -> Any:
        """Return a new channel of the core for one attempt."""

    def channel_for(self, limit: float) -> tuple[Any, float | None, Key | None]:
        """Return a channel of the core for an attempt with a time limit of `limit` seconds.

        If it is a spare one (SH-8), the time when its connection was made follows. If it may become one, its key is the
        third; channels with credentials are none, because these are rarely the same object twice.
        """
        made_with = self._target, self._options_for(limit), self._compression
        if not (self.familiar and self._spares) or SPARES.avoids(made_with):
            return self.make_channel(made_with), None, None
        key = self.home, made_with
        spare = SPARES.take(key)
        if spare is None:
            return self.make_channel(made_with), None, key
        return spare.channel, spare.made, key

    def _options_for(self, limit: float) -> Options:
        """Return the options of a channel that makes one attempt with a time limit of `limit` seconds."""
        timing = attempt_options(self.policy, limit, spreads=self.spreads)
        slower = self.keepalive.slower
        keepalive = () if slower == 1 else keepalive_options(self._options, slower)
        guarded = ((_ENABLE_RETRIES, 0),) if self.guards else ()
        return ((LOCAL_POOL, 1), *timing, *keepalive, *guarded, *self._options)

    def guard_next(self) -> None:
        """Let the core repeat no calls on the next connection: it would redial for them, often without showing it.

        Where the core repeats no calls, or by a policy, or makes several connections by itself, nothing changes.
        """
        self.guards = self.derived.repeats and not self.spreads


class LateDial(Generic[DialT]):
    """An attempt that dials after `connect` has returned, unless it is abandoned before."""

    _waits: Cancellable
    """What it waits for."""

    def __init__(self, owner: BaseConnector[DialT], tell: Tell[DialT]) -> None:
        self._owner = owner
        self._tell = tell
        self._dial: DialT | None = None

    def _begin(self, limit: float) -> None:
        self._waits.cancel()  # it refers to this attempt (CB-10)
        tell, self._tell = self._tell, unheard
        try:
            self._dial = self._owner.dial(limit, tell)
        except Exception as error:  # noqa: BLE001 - a bug must not leave the channel waiting for ever
            _LOG.exception("an attempt to connect raised an unexpected exception")
            tell(Failure(Stage.UNKNOWN, repr(error)))

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been reported yet."""
        return self._dial is not None and self._dial.decided()

    def abandon(self) -> None:
        """Abandon the attempt, or do not begin it."""
        self._tell = unheard
        self._waits.cancel()
        if self._dial is not None:
            self._dial.abandon()
