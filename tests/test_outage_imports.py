"""Which modules failures import: none, because then there may be no free file, or files of another version."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import status_pb2

from tests.aio.retry_service import HANG, RetryService, Say
from tests.echo import serving

ROOT = Path(__file__).parents[1]
RICH = status_pb2.Status(code=14, details=[Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\n\x00")])
HINTS = [
    Say(trailing=(("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"),)),
    Say(trailing=(("grpc-status-details-bin", RICH.SerializeToString()),)),
    Say(trailing=(("grpc-retry-pushback-ms", "1"),)),
]
TEXTS = [f"hint {number}" for number in range(len(HINTS))]


@pytest.mark.parametrize("kind", ["aio", "sync"])
async def test_outages(kind):
    """CH-12: no call, failure, retry or close imports anything, once channels, stubs and policies are made."""
    service = RetryService()
    service.scripts = {text: [hint] * 1000 for text, hint in zip(TEXTS, HINTS, strict=True)}
    service.scripts["hang"] = [HANG] * 1000
    async with serving(service) as port:
        command = [sys.executable, "-m", "tests.outage", kind, f"127.0.0.1:{port}", *TEXTS]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["imported:"]


ALONE = """
import asyncio, sys
import grpc
import grpc_backoff
from grpc_backoff import aio

RETRY = sys.argv[2] or None
imported = []


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        imported.append(name)


for module in () if RETRY else ("random", "encodings.idna"):
    assert module not in sys.modules, module


def on_a_slow_machine():  # which may take more than the second after which the call's channel may import again
    sys.modules["grpc_backoff.engine.news"]._TICK = 3600.0


async def on_asyncio():
    channel = aio.insecure_channel("127.0.0.1:1", retry=RETRY)
    on_a_slow_machine()
    method = channel.unary_unary("/echo.v1.Echo/Unary")
    sys.meta_path.insert(0, Finder)
    try:
        await method(b"")
    except grpc.RpcError:
        await channel.close()


def on_threads():
    channel = grpc_backoff.insecure_channel("127.0.0.1:1", retry=RETRY)
    on_a_slow_machine()
    method = channel.unary_unary("/echo.v1.Echo/Unary")
    sys.meta_path.insert(0, Finder)
    try:
        method(b"")
    except grpc.RpcError:
        channel.close()


asyncio.run(on_asyncio()) if sys.argv[1] == "aio" else on_threads()
print(*imported)
"""


@pytest.mark.parametrize("retry", ["", "retry: 2, delay: 1ms", "hedge: 1ms, attempts: 2"])
@pytest.mark.parametrize("kind", ["aio", "sync"])
def test_outage_of_an_only_channel(kind, retry):
    """CH-12: nor does the first failure of a program whose only channel has no options, or only a policy."""
    command = [sys.executable, "-c", ALONE, kind, retry]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "adds",
    [
        "channel.add_listener(repr)",
        "await (channel.close() or asyncio.sleep(0)); channel = api.insecure_channel('127.0.0.1:1', listeners=[repr])",
    ],
)
@pytest.mark.parametrize("module", ["grpc_backoff", "grpc_backoff.aio"])
def test_what_a_listener_imports(module, adds):
    """CH-12, CH-11: the events are there before a call is made if there is a listener, and only then."""
    program = f"""
import asyncio, sys, {module} as api
KINDS = "grpc_backoff.decide.connections.events", "grpc_backoff.decide.connections.slot_events"
async def main():
    channel = api.insecure_channel("127.0.0.1:1", retry="retry: 1")
    channel.unary_unary("/echo.v1.Echo/Unary")
    assert not sys.modules.keys() & set(KINDS)
    {{adds}}
    assert sys.modules.keys() >= set(KINDS)
    await (channel.close() or asyncio.sleep(0))
asyncio.run(main())
"""
    program = program.replace("{adds}", adds)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
