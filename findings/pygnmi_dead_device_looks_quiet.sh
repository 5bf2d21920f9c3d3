#!/usr/bin/env bash
# A telemetry subscription of pyGNMI whose device dies, or refuses it, waits for ever: to a collector it is just quiet.
#
# Versions: pygnmi 0.8.15 with grpcio 1.85.3; Python 3.11 or newer, Linux. `subscribe2` returns an object that "can be
# iterated over to process updates from the target as they are available". A server with gNMI's protocol streams two
# updates to a subscriber, and then stays quiet; a subscription of the path "secret" it refuses with PERMISSION_DENIED.
# One collector iterates over a subscription, one over a refused one, and a third one reads with grpcio's own stub. The
# server is killed, and five seconds later started again. Ten seconds after that `get_update` asks for one more update.
#
# Seen: grpcio's stream raises UNAVAILABLE when the server dies. pyGNMI's iterators raise nothing and do not end, not
# then and not when the subscription is refused, and nothing subscribes again when the server is back: the thread that
# reads the stream has ended with a traceback on standard error, and the caller waits for an empty queue. `get_update`
# raises TimeoutError, the same as for a device that has nothing to say; only the attribute `error` has the status. So a
# collector shows a dead router as one whose counters do not change, and goes on so after the router has come back.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pygnmi==0.8.15 grpcio==1.85.3
cat > "$folder/server.py" <<'PYTHON'
import concurrent.futures, sys, threading
import grpc
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc


class Device(gnmi_pb2_grpc.gNMIServicer):
    def Capabilities(self, request, context):
        return gnmi_pb2.CapabilityResponse(supported_encodings=[gnmi_pb2.JSON], gNMI_version="0.8.0")

    def Subscribe(self, requests, context):
        if b"secret" in next(requests).SerializeToString():
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        yield gnmi_pb2.SubscribeResponse(sync_response=True)
        yield gnmi_pb2.SubscribeResponse(update=gnmi_pb2.Notification(timestamp=1))
        threading.Event().wait()


server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
gnmi_pb2_grpc.add_gNMIServicer_to_server(Device(), server)
port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
print(port, flush=True)
server.wait_for_termination()
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import os, pathlib, subprocess, sys, threading, time
import grpc
from pygnmi.client import gNMIclient
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

folder = pathlib.Path(sys.argv[1])
threading.excepthook = lambda failed: None  # which would print the errors of pyGNMI's own threads
seen = {}


def start(port):
    """Start a server; return its process and port."""
    process = subprocess.Popen([sys.executable, folder / "server.py", str(port)], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def collect(name, stream):
    """Note the number of updates of a stream, and how it ends."""
    seen[name] = [0, "waits"]

    def run():
        try:
            for _ in stream:
                seen[name][0] += 1
            seen[name][1] = "ends"
        except Exception as error:
            seen[name][1] = error.code().name if isinstance(error, grpc.RpcError) else repr(error)

    threading.Thread(target=run, daemon=True).start()


def subscribe(path):
    return client.subscribe2({"subscription": [{"path": path, "mode": "on_change"}], "encoding": "json"})


process, port = start(0)
client = gNMIclient(target=("127.0.0.1", port), insecure=True)
client.connect()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
stream = subscribe("/interfaces")
refused = subscribe("/secret")
collect("pyGNMI", stream)
collect("pyGNMI, refused", refused)
collect("grpcio", gnmi_pb2_grpc.gNMIStub(channel).Subscribe(iter([gnmi_pb2.SubscribeRequest()])))
time.sleep(2)
before = {name: tuple(values) for name, values in seen.items()}
process.kill()
process.wait()
time.sleep(5)
process, _ = start(port)
time.sleep(10)
after = {name: tuple(values) for name, values in seen.items()}
try:
    refused.get_update(timeout=2)
    timed = "an update"
except Exception as error:
    timed = type(error).__name__
process.kill()
for name, (updates, end) in after.items():
    print(f"{name}: {updates} updates, before the server dies {before[name][1]}, after it is back {end}")
errors = [each.error.code().name for each in (stream, refused)]
print(f"get_update: {timed}; attributes `error`: {errors}")
sys.stdout.flush()
right = before["grpcio"][1] == "waits" and after["grpcio"] == (2, "UNAVAILABLE") and timed == "TimeoutError"
right = right and before["pyGNMI"][0] > 0 and after["pyGNMI"] == before["pyGNMI"] and after["pyGNMI"][1] == "waits"
right = right and after["pyGNMI, refused"] == before["pyGNMI, refused"] == (0, "waits")
os._exit(not (right and errors == ["UNAVAILABLE", "PERMISSION_DENIED"]))  # waiting threads would keep it alive
PYTHON
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
"$folder/venv/bin/python" "$folder/see.py" "$folder"
