"""How threaded channels behave in the child of a fork (FK-1).

The child does not touch any of the parent's core channels and keeps each of them until the process ends. Calls that
have no attempt in flight end in the child; as for the others, grpcio ends them if its own fork support is on.
"""

from __future__ import annotations

from weakref import WeakSet

from grpc_backoff.grpcio.forks import CoreUse, at_fork
from grpc_backoff.grpcio.sync_private import forget_channels
from grpc_backoff.sync.calls import Calls
from grpc_backoff.sync.core_connector import CoreConnection

connections: WeakSet[CoreConnection] = WeakSet()
"""The connections that calls may use."""
channels_calls: WeakSet[Calls] = WeakSet()
"""The calls of each channel."""
_inherited: list[object] = []
"""The parent's core channels. They are kept, because freeing one would involve the core."""


def _inherit() -> CoreUse:
    for calls in tuple(channels_calls):
        calls.abandon()
    _inherited.extend(forget_channels())
    for connection in tuple(connections):
        connection.leave_alone()
    return CoreUse(threaded=bool(_inherited))


at_fork(_inherit)
