"""OpenTelemetry, Sentry and ddtrace see each call on our channels exactly once, whatever the order of installation."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.clients.traced import METHODS

PROGRAM = Path(__file__).with_name("traced.py")
QUIET = {  # keeps ddtrace from looking for an agent
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
    "DD_CRASHTRACKING_ENABLED": "false",
}


def echo(request):
    return request


def stream(request):
    return request


stream.streams = True


@pytest.mark.parametrize("tracer", ["opentelemetry", "sentry", "ddtrace"])
@pytest.mark.parametrize(
    ("api", "order", "maker"),
    [
        *(("asyncio", order, maker) for maker in ("grpc", "ours") for order in ("before", "after")),
        ("asyncio", "alone", "ours"),
        # The tracers wrap only channels from grpc's own constructors.
        ("threads", "before", "grpc"),
        ("threads", "after", "grpc"),
    ],
)
async def test_each_call_is_traced_once(server, api, tracer, order, maker):
    """CH-1, TH-7: each call is traced once, whether `install` comes before the tracer, after it, or not at all."""
    server.methods.update({"/traced/Ask": echo, "/traced/Watch": stream})
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        api,
        tracer,
        order,
        maker,
        server.target,
        env={**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await child.communicate()
    assert child.returncode == 0
    seen = json.loads(out)
    assert seen["ours"]
    assert sorted(name.lstrip("/") for name in seen["traced"]) == [name.lstrip("/") for name in METHODS]
    assert server.calls.total() == len(METHODS)
