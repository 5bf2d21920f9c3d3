#!/usr/bin/env bash
# A LittleHorse worker in Python that loses its stream waits for up to a minute, or for good, and calls itself healthy.
#
# Versions: littlehorse-client 1.3.0 with grpcio 1.75.1, which it pins; Python 3.11 or newer, Linux. A worker asks for
# tasks over one stream to each server (PollTask), and registers anew each minute. Its `health()` is HEALTHY or says why
# not. A server with LittleHorse's protocol ends the first stream of two workers after a second, that of "broken" with
# UNAVAILABLE, as in a restart, and that of "ended" with OK, as a server does which wants its clients to go elsewhere.
# It keeps all later streams. After 75 s the workers are stopped.
#
# Seen: the worker "broken" asks again after 60 s: a stream that breaks is noted, but looked at only when the worker
# registers next. The worker "ended" never asks again: only an exception makes a stream count as gone, and this one ends
# without. Both are HEALTHY at each second. `stop`, documented as a clean shutdown, takes 45 s, since the minute's sleep
# runs to its end. So a restart that takes a second costs each worker up to a minute of work, in which no health check
# sees it; and a worker that is told to stop is mostly killed, as Kubernetes waits for 30 s.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet littlehorse-client==1.3.0
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, logging, os, sys, time
import grpc
from littlehorse.config import LHConfig
from littlehorse.model import LHHostInfo, RegisterTaskWorkerResponse, TaskDef, TaskDefId, service_pb2_grpc
from littlehorse.worker import LHTaskWorker

logging.disable()  # of each failed call
polls, unhealthy = {"broken": [], "ended": []}, []


class Server(service_pb2_grpc.LittleHorseServicer):
    """Ends the first stream of each task after a second, and keeps later ones."""

    def GetTaskDef(self, request, context):
        return TaskDef(id=TaskDefId(name=request.name))

    def RegisterTaskWorker(self, request, context):
        return RegisterTaskWorkerResponse(your_hosts=[LHHostInfo(host="127.0.0.1", port=port)])

    def PollTask(self, requests, context):
        name = next(requests).task_def_id.name
        polls[name].append(time.monotonic())
        time.sleep(1)
        if len(polls[name]) > 1:
            for _ in requests:
                pass
        elif name == "broken":
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        return iter(())


async def task() -> None:
    pass


async def main():
    """Return the times of the polls of each task, the health seen, and how long the workers took to stop."""
    workers = [LHTaskWorker(task, name, config) for name in polls]
    work = [asyncio.create_task(worker.start()) for worker in workers]
    start = time.monotonic()
    while time.monotonic() < start + 75:
        await asyncio.sleep(1)
        unhealthy.extend(worker for worker in workers if not worker.health().healthy)
    stop = time.monotonic()
    for worker in workers:
        worker.stop()
    await asyncio.gather(*work)
    return {name: [round(at - start) for at in times] for name, times in polls.items()}, time.monotonic() - stop


server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
service_pb2_grpc.add_LittleHorseServicer_to_server(Server(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
config = LHConfig()
config.load({"LHC_API_HOST": "127.0.0.1", "LHC_API_PORT": port, "LHC_API_PROTOCOL": "PLAINTEXT"})
seen, stopping = asyncio.run(main())
print(f"seconds of the polls: {seen}; times unhealthy: {len(unhealthy)}; stopping took {stopping:.0f} s")
sys.stdout.flush()
right = len(seen["ended"]) == 1 and len(seen["broken"]) == 2 and 55 < seen["broken"][1] - seen["broken"][0] < 70
os._exit(not (right and not unhealthy and stopping > 30))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 200 "$folder/venv/bin/python" "$folder/see.py"
