#!/usr/bin/env bash
# A write by KurrentDB's Python client with a timeout of one second waits on, without a limit, or takes two.
#
# Versions: kurrentdbclient 1.3.5, grpcio 1.85.1; Python 3.11 or newer, Linux. The README has that the `timeout` of
# `append_to_stream` "sets a maximum duration, in seconds, for the completion of the gRPC operation", and that the
# client for asyncio is "functionally equivalent". A server with KurrentDB's protocol takes an event, then leaves a
# second one without an answer, and then ends writes with UNAVAILABLE: first while it answers reads, and then while it
# leaves those without an answer. Both clients append each event with `timeout=1`, and get 30 s for it.
#
# Seen: the unanswered write takes 2.1 s with threads and 2.5 s with asyncio: `retrygrpc` also retries after a
# DEADLINE_EXCEEDED, and each attempt is given the whole timeout. A write that is refused makes four calls, since
# `autoreconnect` and `retrygrpc` multiply. If reads are not answered, the client for threads still waits after 30 s,
# and has sent the write once: when it has reconnected, it reads the commit position, to "exercise the connection", and
# this read has no deadline. The client for asyncio does not read, and ends within a second. So the thread that writes
# stops for as long as the node does not answer, whatever its timeout.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet kurrentdbclient==1.3.5 grpcio==1.85.1
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, os, sys, threading, time
import grpc
from kurrentdbclient import AsyncKurrentDBClient, KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.protos.v1 import shared_pb2, streams_pb2, streams_pb2_grpc

calls = []
WRITES = {"Append", "BatchAppend"}
CASES = ("OK", "OK"), ("silence", "OK"), ("UNAVAILABLE", "OK"), ("UNAVAILABLE", "silence")


class Streams(streams_pb2_grpc.StreamsServicer):
    writes = reads = "OK"

    def end(self, context, behaviour):
        """Say nothing until the call is over, refuse it, or return."""
        if behaviour == "silence":
            while context.is_active():
                time.sleep(0.05)
        if behaviour == "UNAVAILABLE":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the node is not ready")

    def Read(self, request, context):
        calls.append("Read")
        self.end(context, self.reads)
        yield from ()

    def Append(self, requests, context):  # as the client for threads writes one event
        calls.append("Append")
        list(requests)
        self.end(context, self.writes)
        position = streams_pb2.AppendResp.Position(commit_position=5, prepare_position=5)
        return streams_pb2.AppendResp(success=streams_pb2.AppendResp.Success(current_revision=0, position=position))

    def BatchAppend(self, requests, context):  # as the client for asyncio does
        calls.append("BatchAppend")
        for request in requests:
            self.end(context, self.writes)
            position = shared_pb2.AllStreamPosition(commit_position=5, prepare_position=5)
            success = streams_pb2.BatchAppendResp.Success(current_revision=0, position=position)
            stream = request.options.stream_identifier
            yield streams_pb2.BatchAppendResp(
                correlation_id=request.correlation_id, stream_identifier=stream, success=success
            )


service = Streams()
server = grpc.server(concurrent.futures.ThreadPoolExecutor(30))
streams_pb2_grpc.add_StreamsServicer_to_server(service, server)
uri = f"kurrentdb://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}?Tls=false"
server.start()


def event():
    return {"events": NewEvent(type="T", data=b"x"), "current_version": StreamState.ANY, "timeout": 1}


def with_threads(client):
    """Append an event; return how it ends, or that it waits after 30 s."""
    ends = ["waits"]

    def work():
        try:
            client.append_to_stream("s", **event())
            ends[0] = "OK"
        except Exception as error:
            ends[0] = type(error).__name__

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    return ends[0]


async def with_asyncio(client):
    try:
        await asyncio.wait_for(client.append_to_stream("s", **event()), 30)
        return "OK"
    except TimeoutError:
        return "waits"
    except Exception as error:
        return type(error).__name__


def see(write, client):
    """Return the ends of a client's four writes, their seconds and calls."""
    seen = []
    for service.writes, service.reads in CASES:
        calls.clear()
        begun = time.monotonic()
        end = write(client)
        seen.append((end, round(time.monotonic() - begun, 1), " ".join(calls)))
        print(f"writes: {service.writes}, reads: {service.reads}: {seen[-1]}", flush=True)
    return seen


print("the client for threads:")
threads = see(with_threads, KurrentDBClient(uri))
print("the client for asyncio:")
with asyncio.Runner() as runner:
    loop = see(lambda client: runner.run(with_asyncio(client)), AsyncKurrentDBClient(uri))
right = threads[3][0] == "waits" and threads[3][2] == "Append Read" and loop[3][0] == "ServiceUnavailableError"
for seen in threads, loop:
    ends = [end for end, _, _ in seen[:3]]
    right = right and ends == ["OK", "GrpcDeadlineExceededError", "ServiceUnavailableError"] and seen[1][1] >= 2
    right = right and sum(each in WRITES for each in seen[2][2].split()) == 4
sys.stdout.flush()
os.write(2, b"" if right else b"This behaviour has changed.\n")
os._exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
