#!/usr/bin/env bash
# A gRPC error of a Celery task reaches `result.get()` without its status, and `except grpc.RpcError` does not catch it.
#
# Versions: Celery 5.7.0 (file system for results, one worker of the pool "solo"), grpcio 1.85.3; Python 3.11 or newer,
# Linux. `AsyncResult.get` is documented to raise again the exception that the task raised. A server fails a call with
# UNAVAILABLE. One task makes it with grpcio's API for threads, another with the asyncio API, and neither catches the
# error; results are serialized once as JSON, the default, and once with pickle. The program waits for the results.
#
# Seen: in three of four cases `get()` raises no RpcError, and nothing that has a `code()`. With JSON, the error of the
# asyncio API is an `Exception` with no status in its text either, and the one for threads an
# UnpickleableExceptionWrapper. With pickle, the one for threads is an exception with the name and module of grpcio's
# class, so that logs show "grpc._channel._InactiveRpcError", but a new class without its bases, whose text is the
# address of an object. Only the error of the asyncio API comes whole through pickle. So a program that decides by
# status what to run once more, or shows "try again later" for UNAVAILABLE, takes each failure for a fault of the task.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet celery==5.7.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, pathlib, sys
import celery, grpc
from celery.contrib.testing.worker import start_worker


def fail(_, context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


def call(address):
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary("/a.B/C")(b"a")


async def call_aio(address):
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.unary_unary("/a.B/C")(b"a")


def see(address, serializer):
    """Run both tasks; return what their results raise."""
    folder = pathlib.Path(sys.argv[1], serializer)
    folder.mkdir()
    app = celery.Celery("see", broker="memory://", backend=f"file://{folder}", set_as_current=False)
    app.conf.update(result_serializer=serializer, accept_content=["json", "pickle"], worker_hijack_root_logger=False)

    @app.task(name="threads")
    def run():
        call(address)

    @app.task(name="asyncio")
    def run_aio():
        asyncio.run(call_aio(address))

    seen = {}
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="CRITICAL"):
        for task in (run, run_aio):
            try:
                task.delay().get(timeout=30)
            except Exception as error:
                status = error.code().name if hasattr(error, "code") else "no status"
                kind = "RpcError" if isinstance(error, grpc.RpcError) else "no RpcError"
                seen[serializer, task.name] = f"{type(error).__name__}, {kind}, {status}"
                print(f"{serializer}, {task.name}: {seen[serializer, task.name]}")
    return seen


handler = grpc.unary_unary_rpc_method_handler(fail)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
seen = see(address, "json") | see(address, "pickle")
server.stop(None).wait()
expected = {
    ("json", "threads"): "UnpickleableExceptionWrapper, no RpcError, no status",
    ("json", "asyncio"): "Exception, no RpcError, no status",
    ("pickle", "threads"): "_InactiveRpcError, no RpcError, no status",
    ("pickle", "asyncio"): "AioRpcError, RpcError, UNAVAILABLE",
}
sys.exit(seen != expected)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
