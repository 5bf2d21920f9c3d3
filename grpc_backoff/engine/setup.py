"""What the pool of a channel dials, how, and when."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from grpc_backoff.engine.watches import load_liveness
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.pooling import PoolPolicy

if TYPE_CHECKING:
    from grpc_backoff.config.places import Place
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.engine.resolver import Tell

Options = Sequence[tuple[str | bytes, object]]


class PoolSetup:
    """What a pool dials, how, and when.

    Attributes:
        target: the channel's target, as given.
        policy: when to dial.
        pooling: which connections this library makes; the core makes none of these by itself.
        addresses: those of a target that names them; None if there is a name to resolve.
        clock: the channel's clock.
        rng: the source of jitter.
        options: the options for grpcio's core.
        key: that of the schedule for the whole target (SH-1); None for a separate schedule.
        place: what the slots dial; None if they dial the whole target, as by default.
    """

    def __init__(
        self,
        target: str,
        policy: ConnectPolicy,
        pooling: PoolPolicy,
        clock: Clock,
        rng: Random,
        options: Options = (),
        key: Hashable | None = None,
    ) -> None:
        """Find out what the slots dial, and import what they need."""
        self.target = target
        self.policy = policy
        self.clock = clock
        self.rng = rng
        self.options = options
        self.key = key
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

    def resolves(self, endpoint: str) -> bool:
        """Return whether the slot of this endpoint stands for a target whose name is to be resolved (PO-7)."""
        return not endpoint and self.pooling.round_robin and self.addresses is None

    def dialled(self, endpoint: str) -> tuple[str, Options]:
        """Return the target with which the core dials an endpoint, and the options for it."""
        if self.place is None:
            return self.target, self.options
        from grpc_backoff.config.places import dial_options, endpoint_target  # noqa: PLC0415 - as above

        if self._dial_options is None:
            self._dial_options = dial_options(self.options, self.place)
        whole, alone = self._dial_options
        return (endpoint_target(endpoint), alone) if endpoint else (self.target, whole)

    def key_of(self, endpoint: str) -> Hashable | None:
        """Return the key of the schedule of a slot: the channel's, and the endpoint (PO-1)."""
        return self.key if self.key is None or not endpoint else (self.key, endpoint)

    def resolve(self, tell: Tell) -> None:
        """Resolve the target's name, if it has one."""
        if self.place is not None and self.place.name is not None:
            from grpc_backoff.engine.resolver import resolve  # noqa: PLC0415 - as above

            resolve(*self.place.name, tell)
