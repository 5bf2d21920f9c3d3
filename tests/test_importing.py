"""Which modules importing the asyncio API loads beyond those of grpc.aio; every program pays for them."""

import subprocess
import sys

NEW = """
import sys
import grpc.aio
before = set(sys.modules)
from grpc_backoff import aio
print(*(set(sys.modules) - before))
"""
LATE = {
    *("json", "urllib.parse", "ipaddress", "tomllib", "difflib", "email.utils", "h2", "random"),
    *(f"grpc_backoff.config.{part}" for part in ("credentials", "failed_call", "file", "methods", "options")),
    *(f"grpc_backoff.config.{part}" for part in ("hooks", "policy_string", "service_config", "settings", "sources")),
    *(f"grpc_backoff.policy.{part}" for part in ("budget", "hedging", "ledger_settings", "parts", "presets", "retry")),
    *(f"grpc_backoff.decide.calls.{part}" for part in ("account", "events", "hedging_machine", "subscription_machine")),
    *(
        f"grpc_backoff.{part}"
        for part in (
            "engine.credentials",
            "engine.network",
            "aio.hedging",
            "aio.subscription",
            "installation",
            "names",
        )
    ),
    *(f"grpc_backoff.decide.connections.{part}" for part in ("slot_events", "health_machine")),
}


def test_what_comes_late():
    """Modules that only some channels need, such as those that read settings, are not loaded on import."""
    done = subprocess.run([sys.executable, "-c", NEW], stdout=subprocess.PIPE, text=True, check=True)
    new = set(done.stdout.split())
    assert "grpc_backoff.aio" in new
    assert new & LATE == set()
