#!/usr/bin/env bash
# A flag that changes while flagd's Python provider renews its event stream keeps its old value there, without an end.
#
# Versions: openfeature-provider-flagd 0.6.1 with openfeature-sdk 0.10.0, grpcio 1.85.3; Python 3.11 or newer, Linux.
# The provider keeps up to 1,000 flags in a cache by default, and drops one when flagd's event stream says that it has
# changed. `stream_deadline_ms`, ten minutes by default, ends the stream, upon which the provider opens it again. A
# server with flagd's protocol has one flag, and tells all its streams of a change. A program with a deadline of four
# seconds instead of ten minutes, and with the other defaults, reads the flag; it changes within the first stream, and
# once more a second after the end of that stream.
#
# Seen: the first change is there at once. When the second one comes, there is no stream to tell: the provider waits for
# `retry_backoff_max_ms`, five seconds, before it opens the next stream, though the last one ended by the provider's own
# deadline. When the new stream is there, the program still reads the old value, from the cache, which nothing empties.
# So in five seconds of every ten minutes, while all is well, a change is lost to each process: a feature that was
# switched off in trouble stays on, until the flag is changed again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(openfeature-provider-flagd==0.6.1 openfeature-sdk==0.10.0 grpcio==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, os, sys, time
import grpc
from google.protobuf.struct_pb2 import Struct
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2, evaluation_pb2_grpc

CHANGE = Struct()
CHANGE.update({"flags": {"switch": {}}})


class Flagd(evaluation_pb2_grpc.ServiceServicer):
    value = True

    def __init__(self):
        self.streams = []
        self.begun = []

    def EventStream(self, request, context):
        news = []
        self.streams.append(news)
        self.begun.append(time.monotonic())
        yield evaluation_pb2.EventStreamResponse(type="provider_ready")
        while context.is_active():
            if news:
                yield news.pop()
            time.sleep(0.02)
        self.streams.remove(news)

    def ResolveBoolean(self, request, context):
        return evaluation_pb2.ResolveBooleanResponse(value=self.value, reason="STATIC", variant="v")

    def set(self, value):
        """Change the flag, and return how many streams hear of it."""
        self.value = value
        streams = list(self.streams)
        for news in streams:
            news.append(evaluation_pb2.EventStreamResponse(type="configuration_change", data=CHANGE))
        time.sleep(0.5)
        return len(streams)


flagd = Flagd()
server = grpc.server(concurrent.futures.ThreadPoolExecutor(10))
evaluation_pb2_grpc.add_ServiceServicer_to_server(flagd, server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
api.set_provider_and_wait(FlagdProvider(host="127.0.0.1", port=port, tls=False, stream_deadline_ms=4000))
client = api.get_client()
seen = []


def look(when, told):
    details = client.get_boolean_details("switch", False)
    seen.append((told, details.value, flagd.value))
    read = f"{details.value} ({details.reason})"
    print(f"{when}: the program reads {read}, the flag is {flagd.value}; {told} streams told")


look("at first", 1)
look("in the first stream", flagd.set(False))
began = flagd.begun[0]
time.sleep(began + 5 - time.monotonic())
look("between the streams", flagd.set(True))
while len(flagd.begun) < 2 and time.monotonic() < began + 30:
    time.sleep(0.1)
time.sleep(2)
gap = flagd.begun[1] - began - 4
look(f"in the second stream, which began {gap:.1f} s after the first one's end", len(flagd.streams))
expected = [(1, True, True), (1, False, False), (0, False, True), (1, False, True)]
sys.stdout.flush()
os._exit(not (seen == expected and 4 < gap < 7))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/venv/bin/python" "$folder/see.py"
