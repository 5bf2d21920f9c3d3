"""For testing what is built on this library: a clock in hand, a connector with a script, a front that fails.

`grpc_backoff.testing.front` (servers that fail on real sockets) and `grpc_backoff.testing.checks` (what any connector
must do) need the extra `testing` and are imported by their own names.
"""

from grpc_backoff.testing.clock import FakeClock
from grpc_backoff.testing.connector import Attempt, Fails, Hangs, ScriptedConnection, ScriptedConnector, Succeeds

__all__ = ["Attempt", "Fails", "FakeClock", "Hangs", "ScriptedConnection", "ScriptedConnector", "Succeeds"]
