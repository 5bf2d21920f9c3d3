#!/usr/bin/env bash
# pyzeebe's worker stops for good after ten failed calls in its whole life, however many succeed between them.
#
# Versions: pyzeebe 4.7.0, grpcio 1.85.3 for a gateway with Zeebe's protocol; Python 3.11 or newer, Linux.
# `max_connection_retries`, 10 by default, is documented as the "amount of connection retries before worker gives up on
# connecting to zeebe"; `work` is documented to raise an error if the gateway is unavailable. A worker with 3 of them
# polls a gateway (ActivateJobs) that answers each poll soon and fails every fourth one with UNAVAILABLE.
#
# Seen: the gateway gets 12 polls, 9 of which succeed. The third failure closes the channel; no poll follows. `work`
# does not return and raises nothing, so the process stays up and looks well, and takes no jobs any more. Nothing resets
# the count: an UNAVAILABLE once a week, at each release of the gateway, ends a worker with the default after ten weeks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pyzeebe==4.7.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, logging, sys
import grpc.aio
from pyzeebe import ZeebeWorker
from pyzeebe.proto import gateway_pb2, gateway_pb2_grpc

logging.disable()  # of each failed poll


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """Has no jobs, and fails every fourth poll."""

    polls = failures = 0

    async def ActivateJobs(self, request, context):
        self.polls += 1
        if self.polls % 4 == 0:
            self.failures += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        await asyncio.sleep(0.2)
        yield gateway_pb2.ActivateJobsResponse()


async def main():
    server, gateway = grpc.aio.server(), Gateway()
    gateway_pb2_grpc.add_GatewayServicer_to_server(gateway, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    worker = ZeebeWorker(grpc.aio.insecure_channel(f"127.0.0.1:{port}"), max_connection_retries=3)

    @worker.task(task_type="a")
    async def run():
        return {}

    work = asyncio.create_task(worker.work())
    await asyncio.wait([work], timeout=45)  # it waits for 5 s after each failure
    polls = gateway.polls
    await asyncio.wait([work], timeout=15)
    print(f"{polls} polls, {gateway.failures} of them failed; 15 s later {gateway.polls} polls")
    print("work() has ended" if work.done() else "work() still runs")
    ok = (polls, gateway.polls, gateway.failures, work.done()) == (12, 12, 3, False)
    work.cancel()
    await asyncio.wait([work], timeout=5)
    await server.stop(None)
    return ok


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
