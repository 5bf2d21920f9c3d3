"""What the pool of a channel dials, how, and when; and a source of jitter that connections can rely on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc

from grpc_backoff.base.logs import Log
from grpc_backoff.base.process import CHANCE
from grpc_backoff.config.core_options import CoreArguments
from grpc_backoff.engine.watches import load_liveness
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import Reconnect

if TYPE_CHECKING:
    from grpc_backoff.config.channel_setup import ChannelSetup
    from grpc_backoff.config.core_options import Options
    from grpc_backoff.config.credentials import CredentialsSource
    from grpc_backoff.config.places import Place
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.engine.resolver import TellAddresses

_LOG = Log(__name__)


class _SteadyRandom:
    """A program's source of jitter, for connections: where it raises or draws no such number, the default stands in.

    Otherwise nothing would wake the connection's manager any more, and calls would wait until their deadlines.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def random(self) -> float:
        """Return a random number, uniformly distributed in [0, 1)."""
        try:
            return _fraction(self._rng.random())
        except Exception:  # noqa: BLE001 - whatever the program's own code raises
            _LOG.exception("the channel's `rng` raised; the operating system's random numbers stand in for its own")
            return CHANCE.random()


def _fraction(drawn: float) -> float:
    if not 0 <= drawn <= 1:
        raise ValueError(f"rng.random() returned {drawn!r}: expected a number in [0, 1)")
    return drawn


class PoolSetup:
    """What a pool dials, how, and when.

    Attributes:
        target: the channel's target, as given.
        policy: when to dial.
        slot_policy: when each slot dials.
        pooling: which connections this library makes; the core makes none of these by itself.
        picks: whether several connections may serve at a time, so that each call has to ask for one.
        addresses: those of a target that names them; None if there is a name to resolve.
        clock: the channel's clock.
        rng: the source of jitter.
        options: the options for grpcio's core.
        credentials, compression: as the channel got them.
        rarer_pings: how many times rarer its next connection pings its server than the options say (CH-8). The core
            slows down by itself when a server complains, but only on the same channel of the core (gRFC A8).
        key: that of the schedule for the whole target (SH-1); None for a separate schedule.
        place: what the slots dial; None if they dial the whole target, as by default.
        resolves: whether the slot without an endpoint stands for a target whose name is to be resolved (PO-7).
    """

    def __init__(
        self,
        setup: ChannelSetup,
        clock: Clock,
        key: Hashable | None = None,
        credentials: grpc.ChannelCredentials | CredentialsSource | None = None,
        compression: grpc.Compression | None = None,
    ) -> None:
        """Find out what the slots dial, and import what they need."""
        target, pooling, options = setup.target, setup.pooling, setup.core_options
        self.target = target
        self.policy = setup.policy
        self.clock = clock
        self.rng = _SteadyRandom(setup.rng) if setup.rng else CHANCE
        self.options: Options = options
        self.rarer_pings = 1
        self.key = key
        self.credentials = credentials
        self.compression = compression
        place: Place | None = None
        if pooling.quiet_after or pooling.watch_network:
            load_liveness()
        if pooling.watch_network:
            from grpc_backoff.engine import network  # noqa: F401, PLC0415 - as long as there are free files
        if pooling.health_service is not None:
            from grpc_backoff.engine import health  # noqa: PLC0415 - few channels watch it (CH-12)

            health.problem_of(health.request_for(""))
        if pooling.round_robin or pooling.resolve_every or pooling.health_service is not None:
            from grpc_backoff.config.places import read_place  # noqa: PLC0415 - few channels need it
            from grpc_backoff.engine import resolver  # noqa: F401, PLC0415

            place = read_place(target, pooling, options)
            "".encode("idna")  # so that `getaddrinfo` does not import the codec when it is asked
        self.place = place
        self._dial_options: tuple[Options, Options] | None = None
        self.pooling, self.addresses = (pooling, None) if place is None else (place.policy, place.addresses)
        self.resolves = self.pooling.round_robin and self.addresses is None
        self.picks = self.pooling.round_robin or self.pooling.max_connections > 1
        self.slot_policy = replace(self.policy, reconnect=Reconnect.LAZY) if self.picks else self.policy

    def dialled(self, endpoint: str) -> CoreArguments:
        """Return what the core dials an endpoint with."""
        if self.place is None:
            return CoreArguments(self.target, self.options, self.compression)
        from grpc_backoff.config.places import dial_options, endpoint_target  # noqa: PLC0415 - as above

        if self._dial_options is None:
            self._dial_options = dial_options(self.options, self.place)
        whole, alone = self._dial_options
        if not endpoint:
            return CoreArguments(self.target, whole, self.compression)
        return CoreArguments(endpoint_target(endpoint), alone, self.compression)

    def key_of(self, endpoint: str) -> Hashable | None:
        """Return the key of the schedule of a slot: the channel's, and the endpoint (PO-1)."""
        return self.key if self.key is None or not endpoint else (self.key, endpoint)

    def resolve(self, tell: TellAddresses) -> None:
        """Resolve the target's name, if it has one."""
        if self.place is not None and self.place.name is not None:
            from grpc_backoff.engine.resolver import resolve  # noqa: PLC0415 - as above

            resolve(*self.place.name, tell)
