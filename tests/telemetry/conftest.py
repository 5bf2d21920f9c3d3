"""A meter provider for each test, and the listener that records there."""

from __future__ import annotations

import pytest

from grpc_backoff.telemetry.otel import Metrics
from tests.telemetry.reading import Reading


@pytest.fixture
def reading():
    """A provider of the test's own."""
    reading = Reading()
    yield reading
    reading.provider.shutdown()


@pytest.fixture
def metrics(reading):
    """What records there."""
    return Metrics(reading.provider)
