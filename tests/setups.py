"""Makes the setup of a pool, which is also what a connector of grpcio's core takes."""

from __future__ import annotations

from grpc_backoff.config.channel_setup import ChannelSetup
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.policy.pooling import PoolPolicy
from grpc_backoff.policy.presets import CONNECT


def pool_setup(
    target, options=(), credentials=None, compression=None, *, policy=CONNECT, clock=None, key=None, rng=None, **pool
):
    """Return a setup with this connect policy, and with these settings of the pool."""
    channel = ChannelSetup(target, policy, PoolPolicy(**pool), None, None, options, (), rng=rng)
    return PoolSetup(channel, clock, key, credentials, compression)
