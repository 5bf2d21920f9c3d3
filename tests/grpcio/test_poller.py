"""What keeps grpcio's poller and its core's threads running while there are channels."""

from __future__ import annotations

import weakref

from grpc_backoff.grpcio.aio_private import Polling


async def test_what_grpcio_starts_is_kept_while_somebody_needs_it():
    """CB-10: channels share one `Polling` object, which is released with the last of them."""
    first, second = Polling.shared(), Polling.shared()
    assert first is second
    kept = weakref.ref(first)
    del first, second
    assert kept() is None
    assert Polling.shared() is not None
