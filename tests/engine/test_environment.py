"""What a channel's calls share."""

from __future__ import annotations

import logging

import pytest

from grpc_backoff import aio
from grpc_backoff.engine import environment


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
@pytest.mark.parametrize("listeners", [[], [print]], ids=["alone", "a listener"])
@pytest.mark.parametrize("spans", [False, True], ids=["no spans", "spans"])
async def test_who_hears_of_retries(level, listeners, spans, caplog, monkeypatch):
    """RT-12: events of retries are made if a listener, the log or OpenTelemetry receives them."""
    monkeypatch.setattr(environment, "modules", {environment.OPENTELEMETRY: None} if spans else {})
    caplog.set_level(level, "grpc_backoff")
    async with aio.insecure_channel("127.0.0.1:1", listeners=listeners) as channel:
        assert channel.calls.heard == (level == logging.INFO or bool(listeners) or spans)
