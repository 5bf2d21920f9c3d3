#!/usr/bin/env bash
# ArmoniK's Python client waits for a result until its stream ends, not until it is there, or calls on without a pause.
#
# Versions: armonik 3.29.4 with grpcio 1.85.3; Python 3.11 or newer, Linux. `wait_for_result_availability` is documented
# to "wait until a result is ready", and to raise RuntimeError if it is aborted. The client reads a stream of events
# (GetEvents) for it. A server with ArmoniK's protocol, in which the result is never there, ends the stream after half a
# second: with OK, as a control plane that shuts down gently, or a proxy for one; then it refuses each stream at once,
# with UNAVAILABLE and with PERMISSION_DENIED. The client waits for at most three seconds.
#
# Seen: if the stream ends with OK, the wait returns as if the result were ready, so that its caller reads a result that
# does not exist. If the stream is refused, the client opens the next one at once, hundreds or thousands in the three
# seconds, with each status and without an end: the loop passes over each RpcError and takes any other end for success.
# So a restart of the control plane gives either a false result or a flood of calls from each waiting client, and one
# whose session or token is not valid waits for good, and never hears why.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet armonik==3.29.4 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import collections, concurrent.futures, logging, os, sys, threading, time
import grpc
from armonik.client import ArmoniKEvents
from armonik.protogen.client import events_service_pb2_grpc

logging.disable()  # of each failed call
streams = collections.Counter()


class Events(events_service_pb2_grpc.EventsServicer):
    """Has no events, and ends each stream with the status that the session is named for."""

    def GetEvents(self, request, context):
        streams[request.session_id] += 1
        if request.session_id != "OK":
            context.abort(grpc.StatusCode[request.session_id], "no")
        time.sleep(0.5)
        return iter(())


def see(name):
    """Return how a wait for a result ends within three seconds, and the number of its streams."""
    end = ["waits"]

    def wait():
        try:
            client.wait_for_result_availability("result", name)
            end[0] = "returns"
        except Exception as error:
            end[0] = repr(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(3)
    print(f"{name}: {end[0]}, {streams[name]} streams")
    return end[0], streams[name]


server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
events_service_pb2_grpc.add_EventsServicer_to_server(Events(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
client = ArmoniKEvents(grpc.insecure_channel(f"127.0.0.1:{port}"))
ended, away, denied = [see(name) for name in ("OK", "UNAVAILABLE", "PERMISSION_DENIED")]
sys.stdout.flush()
right = ended == ("returns", 1) and away[0] == denied[0] == "waits" and min(away[1], denied[1]) > 100
os._exit(not right)  # the last threads would keep on
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/venv/bin/python" "$folder/see.py"
