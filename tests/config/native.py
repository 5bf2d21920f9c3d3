"""A retryPolicy of gRPC's service config, and what grpc thinks of a service config."""

from __future__ import annotations

import grpc
import pytest

NATIVE = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}


def taken_by_grpc(service_config):
    """Return whether grpc accepts a service config; if not, every call on the channel fails with that error."""
    channel = grpc.insecure_channel("ipv4:127.0.0.1:1", options=[("grpc.service_config", service_config)])
    with channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/a.B/C")(b"", timeout=10)  # nothing listens on this port
    refused = caught.value.details().startswith("Failed to create channel")
    # A config with a timeout may end the call before the connection is refused.
    assert refused or caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return not refused
