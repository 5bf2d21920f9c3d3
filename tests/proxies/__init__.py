"""Real HTTP proxies on loopback, for tests and benchmarks.

    with running("envoy", upstream=port, manager={"common_http_protocol_options": {"max_requests_per_connection": 20}}):

`kinds.py` says how each proxy is configured; `process.py` starts, drains, freezes and ends it.
"""

from __future__ import annotations

import pytest

from tests.proxies.kinds import PROXIES, Proxy
from tests.proxies.process import Front, Process, prepared, running, unused_port

__all__ = ["AT_HAND", "PROXIES", "Front", "Process", "Proxy", "need", "prepared", "running", "unused_port"]

AT_HAND = [name for name, proxy in PROXIES.items() if not (proxy.build and proxy.missing)]
"""The proxies to test with: all, except those that only `make interop-full` builds, unless it has."""


def need(name: str) -> None:
    """Skip the test if this proxy is not installed; where peers are required, the test fails when it starts it."""
    from grpc_judge.runner.build import peers_required  # benchmarks run without the judge

    if PROXIES[name].missing and not peers_required():
        pytest.skip(f"{PROXIES[name].missing} is missing")
