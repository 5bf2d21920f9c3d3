#!/usr/bin/env bash
# A KurrentDB client for threads that was closed connects again when it is used, and then cannot be closed any more.
#
# Versions: kurrentdbclient 1.3.5, grpcio 1.85.1; Python 3.11 or newer, Linux. The README has that `close()` can be used
# "to cleanly close the client's gRPC connection", and that the client for asyncio has "the same behaviors". A server
# with KurrentDB's protocol takes all events and answers all reads. Each client appends an event, is closed, appends a
# second event, is closed again, and appends a third one.
#
# Seen: with threads, all three events are written. `autoreconnect` takes the ValueError of grpcio's closed channel for
# a lost connection, so the closed client has one again. The second `close()` does not end it, because the client is
# marked as closed since the first one: the third event goes through this connection, and it lasts for as long as the
# client. With asyncio, the second and the third event raise AttributeError, "object has no attribute '_connection'",
# which is no KurrentDBClientError. So a thread that still writes when its program closes the client keeps a connection
# that no `close()` ends, and a program that moves to asyncio ends in an error that it does not expect.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet kurrentdbclient==1.3.5 grpcio==1.85.1
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, pathlib, sys, time
import grpc
from kurrentdbclient import AsyncKurrentDBClient, KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.protos.v1 import shared_pb2, streams_pb2, streams_pb2_grpc

peers = []  # the client's end of each connection that an event came through


class Streams(streams_pb2_grpc.StreamsServicer):
    def Read(self, request, context):
        yield from ()

    def Append(self, requests, context):  # as the client for threads writes one event
        peers.append(context.peer())
        list(requests)
        position = streams_pb2.AppendResp.Position(commit_position=5, prepare_position=5)
        return streams_pb2.AppendResp(success=streams_pb2.AppendResp.Success(current_revision=0, position=position))

    def BatchAppend(self, requests, context):  # as the client for asyncio does
        for request in requests:
            peers.append(context.peer())
            position = shared_pb2.AllStreamPosition(commit_position=5, prepare_position=5)
            success = streams_pb2.BatchAppendResp.Success(current_revision=0, position=position)
            stream = request.options.stream_identifier
            yield streams_pb2.BatchAppendResp(
                correlation_id=request.correlation_id, stream_identifier=stream, success=success
            )


server = grpc.server(concurrent.futures.ThreadPoolExecutor(10))
streams_pb2_grpc.add_StreamsServicer_to_server(Streams(), server)
port = server.add_insecure_port("127.0.0.1:0")
uri = f"kurrentdb://127.0.0.1:{port}?Tls=false"
server.start()


def event():
    return {"events": NewEvent(type="T", data=b"x"), "current_version": StreamState.ANY, "timeout": 10}


def connections():
    """Return how many connections to the server are established, a second later."""
    time.sleep(1)
    lines = [each.split() for name in ("tcp", "tcp6") for each in pathlib.Path("/proc/net", name).open()]
    return sum(each[2].endswith(f":{port:04X}") and each[3] == "01" for each in lines)


def describe(error):
    return f"{type(error).__name__}: {error}"


def with_threads(client):
    seen = []
    for _ in range(3):
        try:
            client.append_to_stream("s", **event())
            end = "OK"
        except Exception as error:
            end = describe(error)
        if len(seen) < 2:
            client.close()
        seen.append((end, connections()))
    return seen


async def with_asyncio(client):
    seen = []
    for _ in range(3):
        try:
            await asyncio.wait_for(client.append_to_stream("s", **event()), 30)
            end = "OK"
        except Exception as error:
            end = describe(error)
        if len(seen) < 2:
            await client.close()
        seen.append((end, await asyncio.to_thread(connections)))
    return seen


print("each append, and the connections after it and its close (the third is not followed by a close):")
client = KurrentDBClient(uri)
threads = with_threads(client)
same = len(peers) == 3 and peers[0] != peers[1] == peers[2]
print(f"threads: {threads}; the third event came through the connection of the second: {same}")
client.close()
left = connections()
print(f"connections after a third close: {left}")
del client
before = connections()
loop = asyncio.run(with_asyncio(AsyncKurrentDBClient(uri)))
print(f"asyncio: {loop}, of which {before} of the client for threads")
server.stop(None)
right = threads == [("OK", 0), ("OK", 1), ("OK", 1)] and same and left == 1 and loop[0] == ("OK", before)
right = right and all(each[0].startswith("AttributeError") for each in loop[1:])
sys.exit(None if right else "This behaviour has changed.")
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
