#!/usr/bin/env bash
# With OpenTelemetry's asyncio instrumentation of grpcio, a call that is given up runs to its end, and leaves no span.
#
# Versions: opentelemetry-instrumentation-grpc 0.66b2 with opentelemetry-sdk 1.45.2, grpcio 1.85.3; Python 3.11 or
# newer, Linux. gRPC's guide to cancellation says that the server is told, so that it can stop its work; grpcio does so
# if the task that awaits a call is cancelled. A server answers after a second. A client calls it five times: without a
# limit, with a deadline of 0.3 s, within `asyncio.timeout(0.3)`, with `asyncio.wait_for` and 0.3 s, and in a task that
# is cancelled after 0.3 s. It does this before and after `GrpcAioInstrumentorClient().instrument()`.
#
# Seen: before, one call is answered and four are cancelled at the server. After, the caller sees the same ends, at the
# same times, but the server is told nothing of the three that were given up: four are answered and one is cancelled.
# And there are two spans for five calls: none for those three. The instrumentation waits for the status of the call; a
# cancelled task leaves it there before it has cancelled the call or ended the span. So with tracing on, callers that
# give up leave their work with a server that is too slow already, retries and hedges add to it, and the slowest calls
# are those that the traces lack.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(opentelemetry-instrumentation-grpc==0.66b2 opentelemetry-sdk==1.45.2 grpcio==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import asyncio, sys
import grpc
from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


class Slow(grpc.GenericRpcHandler):
    """Answers each call after a second, and counts how calls end."""

    answered = cancelled = 0

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    async def answer(self, request, context):
        try:
            await asyncio.sleep(1)
            self.answered += 1
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b""


async def with_timeout(call):
    async with asyncio.timeout(0.3):
        await call(b"")


async def cancelled(call):
    async def run():
        await call(b"")

    task = asyncio.create_task(run())
    await asyncio.sleep(0.3)
    task.cancel()
    await task


async def end(awaitable):
    try:
        await awaitable
        return "OK"
    except grpc.RpcError as error:
        return error.code().name
    except (TimeoutError, asyncio.CancelledError) as error:
        return type(error).__name__


async def see(name):
    """Return how the calls end, how they end at the server, and the statuses of their spans."""
    server, slow = grpc.aio.server(), Slow()
    server.add_generic_rpc_handlers([slow])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.B/C")

        async def once(**limits):
            await call(b"", **limits)

        calls = once(), once(timeout=0.3), with_timeout(call), asyncio.wait_for(once(), 0.3), cancelled(call)
        ends = [await end(each) for each in calls]
        await asyncio.sleep(3)
    counts = slow.answered, slow.cancelled
    await server.stop(None)
    spans = sorted(span.attributes["rpc.grpc.status_code"] for span in exporter.get_finished_spans())
    print(f"{name}: ends {ends}; at the server {counts[0]} answered, {counts[1]} cancelled; statuses of spans {spans}")
    return ends, counts, spans


async def main():
    plain = await see("plain")
    GrpcAioInstrumentorClient().instrument(tracer_provider=provider)
    traced = await see("traced")
    ends = ["OK", "DEADLINE_EXCEEDED", "TimeoutError", "TimeoutError", "CancelledError"]
    return plain == (ends, (1, 4), []) and traced == (ends, (4, 1), [0, 4])


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
