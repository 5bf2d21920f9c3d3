#!/usr/bin/env bash
# A stream of Hatchet's Python client that fails ends as a complete one does, or is opened a thousand times a second.
#
# Versions: hatchet-sdk 1.43.1, grpcio 1.85.3; Python 3.11 or newer, Linux. `hatchet.runs.subscribe_to_stream` gives
# what a task of a run puts into its stream, such as the answer of a language model, chunk by chunk. The client has a
# limit of retries for it, five of them, and a pause of five seconds before each. A server with Hatchet's protocol sends
# two chunks on the first call, and then fails it and all later ones: with INTERNAL, PERMISSION_DENIED, UNAUTHENTICATED
# or UNAVAILABLE. The client reads for at most five seconds.
#
# Seen: with each of the first three the loop over the stream ends after the two chunks and nothing is raised, as if the
# task had sent no more. With UNAVAILABLE the client opens the stream anew without a pause, thousands of times in the
# five seconds, and goes on until its caller gives up. Limit and pause stand around the statement that makes the call,
# which raises nothing, for a call of grpcio's asyncio API fails when it is read. So a proxy whose server is gone, which
# says UNAVAILABLE, gets thousands of calls from each reader, and each other failure is an answer that is cut.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet hatchet-sdk==1.43.1 grpcio==1.85.3 grpcio-status==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, base64, concurrent.futures, json, logging, os, sys, time
import grpc
from hatchet_sdk import Hatchet
from hatchet_sdk.config import ClientConfig, ClientTLSConfig
from hatchet_sdk.contracts import dispatcher_pb2

logging.disable()  # of aborts
times, code = [], None


class Streams(grpc.GenericRpcHandler):
    """Sends two chunks on the first call, and fails each call with `code`."""

    def service(self, details):
        return grpc.unary_stream_rpc_method_handler(self.send)

    def send(self, request, context):
        times.append(time.monotonic())
        if len(times) == 1:
            kind = dispatcher_pb2.RESOURCE_EVENT_TYPE_STREAM
            resource = dispatcher_pb2.RESOURCE_TYPE_STEP_RUN
            for chunk in "ab":
                event = dispatcher_pb2.WorkflowEvent(resource_type=resource, event_type=kind, event_payload=chunk)
                yield event.SerializeToString()
        context.abort(code, "no")


def part(**claims):
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


async def see(name):
    """Return what the client reads, how the loop ends, and the number of calls."""
    global code
    code, got = grpc.StatusCode[name], []
    times.clear()
    try:
        async with asyncio.timeout(5):
            async for chunk in hatchet.runs.subscribe_to_stream("a"):
                got.append(chunk)
        end = "ends"
    except TimeoutError:
        end = "still reads"
    except Exception as error:
        end = repr(error)
    print(f"{name}: {got}, {end}, {len(times)} calls")
    return got, end, len(times)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Streams()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
claims = {"sub": "00000000-0000-0000-0000-000000000000", "server_url": f"http://127.0.0.1:{port}"}
token = f"{part(alg='none')}.{part(**claims, grpc_broadcast_address=f'127.0.0.1:{port}')}.a"
hatchet = Hatchet(config=ClientConfig(token=token, tls_config=ClientTLSConfig(strategy="none")))
seen = [asyncio.run(see(name)) for name in ("INTERNAL", "PERMISSION_DENIED", "UNAUTHENTICATED")]
got, end, calls = asyncio.run(see("UNAVAILABLE"))
sys.stdout.flush()
os._exit(not (seen == [(["a", "b"], "ends", 1)] * 3 and (got, end) == (["a", "b"], "still reads") and calls > 100))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/venv/bin/python" "$folder/see.py"
