"""Fixtures: a meter provider for each test, and a listener that records with it."""

from __future__ import annotations

import pytest

from grpc_backoff.telemetry.otel import Metrics
from tests.telemetry.reading import Reading


@pytest.fixture
def reading():
    """A meter provider for this test, with a reader."""
    reading = Reading()
    yield reading
    reading.provider.shutdown()


@pytest.fixture
def metrics(reading):
    """The listener, which records with the provider of `reading`."""
    return Metrics(reading.provider)
