#!/usr/bin/env bash
# A worker of Cadence's Python SDK that is refused polls again at once: hundreds of calls a second, without an end.
#
# Versions: cadence-python-client 0.4.1, grpcio 1.85.3; Python 3.11 to 3.13, Linux. A worker polls for tasks with four
# loops by default; a poll waits at the server for up to a minute. The SDK repeats a call that ends with UNAVAILABLE,
# RESOURCE_EXHAUSTED, ABORTED or INTERNAL, with an exponential backoff. A server with Cadence's protocol fails each poll
# for three seconds: with UNAVAILABLE, with NOT_FOUND, as Cadence does if the domain does not exist or not yet, and with
# PERMISSION_DENIED, as a proxy does for a token that has run out.
#
# Seen: with UNAVAILABLE there are about 80 polls in the three seconds, ever fewer. With the others there are more than
# two thousand, with no pause between them, each with a traceback in the log: what the backoff does not cover, the loop
# logs and goes on. `Worker.run` and the block of `async with` go on as well, so that nothing ends or tells the program
# that it can never work. So one worker with a wrong domain or an old token takes up a processor, at the server as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(cadence-python-client==0.4.1 grpcio==1.85.3 grpcio-status==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import asyncio, logging, os, sys
import grpc
import grpc.aio
from cadence.api.v1 import service_worker_pb2_grpc
from cadence.client import Client
from cadence.worker import Registry, Worker

logging.disable()  # of each failed poll
code, polls = None, 0


class Refusing(service_worker_pb2_grpc.WorkerAPIServicer):
    """Fails each poll with `code`."""

    async def PollForDecisionTask(self, request, context):
        global polls
        polls += 1
        await context.abort(code, "no")

    PollForActivityTask = PollForDecisionTask


async def see(port, name):
    """Return how many polls a worker makes in three seconds."""
    global code, polls
    code, polls = grpc.StatusCode[name], 0
    client = Client(domain="a", target=f"127.0.0.1:{port}")
    async with Worker(client, "tasks", Registry()):
        await asyncio.sleep(3)
        seen = polls
    print(f"{name}: {seen} polls")
    return seen


async def main():
    server = grpc.aio.server()
    service_worker_pb2_grpc.add_WorkerAPIServicer_to_server(Refusing(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    away, missing, denied = [await see(port, name) for name in ("UNAVAILABLE", "NOT_FOUND", "PERMISSION_DENIED")]
    sys.stdout.flush()
    os._exit(not (away < 120 and missing > 3 * away and denied > 3 * away))


asyncio.run(main())
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/venv/bin/python" "$folder/see.py"
