#!/usr/bin/env bash
# With nameko-grpc, a stream whose server dies ends like a complete one.
#
# Versions: nameko-grpc 1.3.0 with grpcio 1.85.3 and grpcio-tools 1.85.1; Python 3.11 or newer, Linux. A gRPC call ends
# well only if the server sends the status OK; a connection that is lost means UNAVAILABLE. nameko-grpc's README has
# errors as `GrpcError`. A server streams five items, and halts after the third if it is asked to. Two clients read such
# a stream to its end, one of nameko-grpc and one of grpcio, and the server is killed after the third item.
#
# Seen: undisturbed, both clients get five items, and an error that the server sends is raised by both. When the server
# dies, grpcio raises UNAVAILABLE after three items. nameko-grpc raises nothing: its loop ends, as if the server had
# sent all. `ConnectionManager.cleanup_on_exit` closes the streams of a lost connection without an error. So an export
# that was cut in half is taken for a whole one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nameko-grpc==1.3.0 nameko==3.0.0rc11 grpcio==1.85.3 \
  grpcio-tools==1.85.1
cd "$folder"
cat > items.proto <<'PROTO'
syntax = "proto3";
package a;
service Items {
  rpc Export (Item) returns (stream Item);
}
message Item {
  string name = 1;
}
PROTO
venv/bin/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. items.proto
cat > server.py <<'PYTHON'
import concurrent.futures, logging, threading
import grpc
import items_pb2, items_pb2_grpc

logging.disable()  # of aborts


class Items(items_pb2_grpc.ItemsServicer):
    def Export(self, request, context):
        for number in range(5):
            yield items_pb2.Item(name=str(number))
            if number == 2 and request.name == "fail":
                context.abort(grpc.StatusCode.DATA_LOSS, "no")
            if number == 2 and request.name == "halt":
                threading.Event().wait()


server = grpc.server(concurrent.futures.ThreadPoolExecutor(9))
items_pb2_grpc.add_ItemsServicer_to_server(Items(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
PYTHON
cat > see.py <<'PYTHON'
import atexit, os, subprocess, sys, threading, time, warnings

warnings.simplefilter("ignore")  # of eventlet, about its future
import grpc
from nameko_grpc.client import Client
from nameko_grpc.errors import GrpcError
import items_pb2, items_pb2_grpc

threading.excepthook = lambda failed: None  # which would print the error of the thread that connects again
seen = {}


def read(key, stream):
    """Note the items of a stream, and how it ends."""
    seen[key] = ["", "waits"]
    try:
        for item in stream:
            seen[key][0] += item.name
        seen[key][1] = "ends"
    except GrpcError as error:
        seen[key][1] = error.code.name
    except grpc.RpcError as error:
        seen[key][1] = error.code().name


process = subprocess.Popen([sys.executable, "server.py"], stdout=subprocess.PIPE, text=True)
atexit.register(process.kill)
port = int(process.stdout.readline())
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
plain = items_pb2_grpc.ItemsStub(channel)
nameko = Client(f"//127.0.0.1:{port}", items_pb2_grpc.ItemsStub).start()
for name in ("all", "fail", "halt"):
    for client, stub in (("grpcio", plain), ("nameko-grpc", nameko)):
        stream = stub.Export(items_pb2.Item(name=name))
        threading.Thread(target=read, args=((name, client), stream), daemon=True).start()
time.sleep(5)
process.kill()
time.sleep(5)
for key, (items, end) in seen.items():
    print(f"{', '.join(key)}: {items or 'nothing'}, {end}")
sys.stdout.flush()
expected = {
    ("all", "grpcio"): ["01234", "ends"],
    ("all", "nameko-grpc"): ["01234", "ends"],
    ("fail", "grpcio"): ["012", "DATA_LOSS"],
    ("fail", "nameko-grpc"): ["012", "DATA_LOSS"],
    ("halt", "grpcio"): ["012", "UNAVAILABLE"],
    ("halt", "nameko-grpc"): ["012", "ends"],
}
os._exit(seen != expected)  # the threads of nameko-grpc would keep it alive
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY venv/bin/python see.py
