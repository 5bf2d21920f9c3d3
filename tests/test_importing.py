"""Which modules importing an API loads beyond those of grpc; every program pays for them."""

import subprocess
import sys

import pytest
import trustme

NEW = """
import sys
import grpc.aio
before = set(sys.modules)
from grpc_backoff import aio
print(*(set(sys.modules) - before))
"""
SLOTS = {
    "grpc_backoff.engine.several_slots",
    *(f"grpc_backoff.decide.connections.{part}" for part in ("pool_machine", "pool_records")),
}
"""What a channel needs only if it has several connections, or replaces one."""

LATE = {
    *("json", "urllib.parse", "ipaddress", "tomllib", "difflib", "email.utils", "h2", "random"),
    *(f"grpc_backoff.config.{part}" for part in ("credentials", "file", "methods", "options", "patterns")),
    *(f"grpc_backoff.config.{part}" for part in ("hooks", "policy_string", "resolving", "service_config")),
    *(f"grpc_backoff.config.{part}" for part in ("settings", "sources")),
    *(f"grpc_backoff.policy.{part}" for part in ("budget", "hedging", "jitter", "ledger_settings")),
    *(f"grpc_backoff.policy.{part}" for part in ("presets", "retry", "strategy")),
    *(f"grpc_backoff.decide.calls.{part}" for part in ("decision", "events", "hedging_machine")),
    *(f"grpc_backoff.decide.calls.{part}" for part in ("retry_machine", "server_hint", "subscription_machine")),
    *(
        f"grpc_backoff.{part}"
        for part in (
            "connection.clock",
            "connection.connector",
            "decide.calls.replay",
            "engine.credentials",
            "engine.health",
            "engine.home",
            "engine.hooks",
            "engine.liveness",
            "engine.network",
            "engine.resolver",
            "engine.room",
            "grpcio.call_counter",
            "aio.hedging",
            "aio.hooks",
            "aio.ordered_timers",
            "aio.subscription",
            "sync.hedged_call",
            "sync.hedging",
            "sync.hooks",
            "sync.replay",
            "installation",
            "names",
        )
    ),
    *(f"grpc_backoff.decide.connections.{part}" for part in ("slot_events", "health_machine", "liveness_machine")),
    *SLOTS,
}


def test_what_comes_late():
    """Modules that only some channels need, such as those that read settings, are not loaded on import."""
    done = subprocess.run([sys.executable, "-c", NEW], stdout=subprocess.PIPE, text=True, check=True)
    new = set(done.stdout.split())
    assert "grpc_backoff.aio" in new
    assert new & LATE == set()


PLAIN = """
import asyncio, sys
import grpc_backoff
from grpc_backoff import aio
async def main():
    channel = aio.insecure_channel("127.0.0.1:1")
    channel.unary_unary("/echo.v1.Echo/Unary")
    await channel.close()
asyncio.run(main())
channel = grpc_backoff.insecure_channel("127.0.0.1:1")
channel.unary_unary("/echo.v1.Echo/Unary")
channel.close()
print(*sys.modules)
"""


def test_what_a_channel_without_options_needs():
    """Nor are they loaded by a channel without options, nor by the first use of a public name."""
    done = subprocess.run([sys.executable, "-c", PLAIN], stdout=subprocess.PIPE, text=True, check=True)
    ours = {name for name in LATE if name.startswith("grpc_backoff.")} - {"grpc_backoff.names"}
    assert set(done.stdout.split()) & ours == set()


REPLACING = """
import sys
import grpc_backoff
retry, files = sys.argv[1:]
credentials = grpc_backoff.tls_files(files) if files else None
make = grpc_backoff.secure_channel if files else grpc_backoff.insecure_channel
channel = make("127.0.0.1:1", *filter(None, [credentials]), **({"retry": retry} if retry else {}))
channel.unary_unary("/echo.v1.Echo/Unary")
channel.close()
print(*sys.modules)
"""


@pytest.mark.parametrize("what", ["a policy", "files", "neither"])
def test_what_replaces_a_connection(what, tmp_path):
    """CH-12, PO-10, RT-15: what a retry or new files of credentials lead to is loaded before there are any."""
    files = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(files))
    arguments = ["standard" if what == "a policy" else "", str(files) if what == "files" else ""]
    command = [sys.executable, "-c", REPLACING, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert set(done.stdout.split()) & SLOTS == (set() if what == "neither" else SLOTS)
