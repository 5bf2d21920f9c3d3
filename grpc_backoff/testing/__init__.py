"""Tools for testing code built on this library: a manual clock, a scripted connector and channel, and a failing server.

Start with `scripted_channel`: it takes the code under test through an outage, without waiting for a real one.

Two modules need the extra `testing` and are imported directly: `grpc_backoff.testing.front` has servers that fail on
real sockets, and `grpc_backoff.testing.checks` has checks that every connector must pass.

Internal, except for `checks`, `front` and `port`: programs import from `grpc_backoff.testing`.
"""

from grpc_backoff.testing.channel import scripted_channel
from grpc_backoff.testing.clock import FakeClock
from grpc_backoff.testing.connector import Attempt, Fails, Hangs, ScriptedConnection, ScriptedConnector, Succeeds

__all__ = [
    "Attempt",
    "Fails",
    "FakeClock",
    "Hangs",
    "ScriptedConnection",
    "ScriptedConnector",
    "Succeeds",
    "scripted_channel",
]
