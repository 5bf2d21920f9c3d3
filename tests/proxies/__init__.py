"""Real HTTP proxies on loopback, for tests and benchmarks.

    with running("envoy", upstream=port, manager={"common_http_protocol_options": {"max_requests_per_connection": 20}}):

`kinds.py` says how each proxy is configured; `process.py` starts, drains, freezes and ends it.
"""

from __future__ import annotations

from tests.proxies.kinds import PROXIES, Proxy
from tests.proxies.process import Front, Process, prepared, running, unused_port

__all__ = ["PROXIES", "Front", "Process", "Proxy", "prepared", "running", "unused_port"]
