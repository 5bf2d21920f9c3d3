#!/usr/bin/env bash
# Oxia's Python client hears of a new leader once: after the second move it goes on calling the old one.
#
# Versions: oxia 0.2.1 with betterproto2 0.9.0 and xxhash 3.6.0, as it does not work with the newest of these, grpcio
# 1.85.3; Python 3.11 or newer, Linux. An Oxia server streams to its clients which server leads each shard
# (GetShardAssignments), at once and whenever that changes, as in each rolling restart; the client has a thread that
# reads this for as long as the client is open. Three servers with Oxia's protocol have one shard. A client puts a key
# each time that the first one has told it of the leader: the first server, then the second, then the third. A server
# that does not lead refuses a put, as Oxia's do.
#
# Seen: the first two keys arrive. The third one goes to the second server, and so does a key five seconds later, though
# the stream is up and all is said. The constructor waits for the first assignment at a barrier for two, and the thread
# goes to that barrier after each assignment: at the second one no other comes any more. It is the same if the stream
# breaks, as the server says all again on the next. So a client is good for one change, and then calls a server that may
# be gone until its process is restarted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet oxia==0.2.1 betterproto2==0.9.0 xxhash==3.6.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, os, queue, sys, time
import grpc
import oxia
from oxia.internal.proto.io.streamnative.oxia import proto as pb

SERVICE = "io.streamnative.oxia.proto.OxiaClient"
assignments, leader = queue.Queue(), None


class Server:
    """Takes puts while it leads."""

    def __init__(self):
        methods = {
            "GetShardAssignments": grpc.unary_stream_rpc_method_handler(self.assign, None, bytes),
            "Write": grpc.unary_unary_rpc_method_handler(self.write, pb.WriteRequest.parse, bytes),
        }
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.keys = []
        self.server.start()

    def assign(self, request, context):
        context.add_callback(lambda: assignments.put(None))
        while server := assignments.get():
            whole = pb.Int32HashRange(min_hash_inclusive=0, max_hash_inclusive=2**32 - 1)
            shard = pb.ShardAssignment(shard=0, leader=server.address, int32_hash_range=whole)
            namespace = pb.NamespaceShardsAssignment(assignments=[shard], shard_key_router=pb.ShardKeyRouter.XXHASH3)
            yield pb.ShardAssignments(namespaces={"default": namespace})

    def write(self, request, context):
        self.keys += [put.key for put in request.puts]
        if leader is not self:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "node is not leader for shard 0")
        return pb.WriteResponse(puts=[pb.PutResponse(version=pb.Version())])


def put(key):
    try:
        client.put(key, b"")
        return "OK"
    except grpc.RpcError as error:
        return error.details()


def lead(server):
    global leader
    leader = server
    assignments.put(server)


servers = [Server() for _ in range(3)]
lead(servers[0])
client = oxia.Client(servers[0].address)
ends = [put("first")]
for key, server in {"second": servers[1], "third": servers[2]}.items():
    lead(server)
    time.sleep(2)
    ends.append(put(key))
time.sleep(5)
ends.append(put("late"))
seen = [server.keys for server in servers]
print("keys at the three servers:", *seen)
print("ends of the puts:", ends)
sys.stdout.flush()
right = seen == [["first"], ["second", "third", "late"], []] and ends[:2] == ["OK", "OK"] and "OK" not in ends[2:]
os._exit(not right)  # the client's threads would keep it alive
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 90 "$folder/venv/bin/python" "$folder/see.py"
