"""Tools for testing code built on this library: a manual clock, a scripted connector and channel, and a failing server.

Start with `scripted_channel`: it takes the code under test through an outage, without waiting for a real one.

`grpc_backoff.testing.front`, which has servers that fail on real sockets, needs the extra `testing`, and is imported
directly.

Internal, except for `front` and `port`: programs import from `grpc_backoff.testing`.
"""

from grpc_backoff.testing.clock import FakeClock
from grpc_backoff.testing.connector import Attempt, Fails, Hangs, ScriptedConnection, ScriptedConnector, Succeeds
from grpc_backoff.testing.scripted import scripted_channel

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
