"""For testing code built on this library: a manual clock, a scripted connector and channel, and a failing front.

Start with `scripted_channel`: it tests how code copes with an outage, without waiting for one.

`grpc_backoff.testing.front` (servers that fail on real sockets) and `grpc_backoff.testing.checks` (what any connector
must do) need the extra `testing` and are imported from their own modules.

Internal, but for `checks`, `front` and `port`: programs import from `grpc_backoff.testing`.
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
