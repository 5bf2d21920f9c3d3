#!/usr/bin/env bash
# With grpcvcr, a stream of responses that fails looks like one that succeeds, both when it is recorded and replayed.
#
# Versions: grpcvcr 0.1.1 with protobuf 7.36.2, grpcio 1.85.3; Python 3.11 or newer, Linux. grpcvcr records gRPC calls
# and replays them in tests, "like VCR.py", and its README names streams among what it supports; a cassette has the
# code and the details of each call. A server sends two messages of a stream and aborts it with UNAVAILABLE. A client
# reads the stream with grpcio's channel, then with grpcvcr's in the mode that records, and in the one that replays.
#
# Seen: with grpcio the stream has two messages and ends with UNAVAILABLE. The cassette has "code: UNAVAILABLE", but the
# caller gets two messages and a normal end, both from the server while grpcvcr records and from the cassette. So a test
# of what a client does when a stream breaks, such as to reconnect or resume, passes without ever seeing a break.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcvcr==0.1.1 grpcio==1.85.3 protobuf==7.36.2
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, pathlib, sys
import grpc
from google.protobuf.wrappers_pb2 import StringValue
from grpcvcr import Cassette, RecordingChannel, RecordMode

logging.disable()  # of aborts
FOLDER = pathlib.Path(sys.argv[1])
CALL = ("/a.B/S", StringValue.SerializeToString, StringValue.FromString)
REQUEST = StringValue(value="request")


def stream(request, context):
    yield StringValue(value="one")
    yield StringValue(value="two")
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


def end(channel):
    """Return the messages of the stream, and how it ends."""
    messages = []
    try:
        messages.extend(message.value for message in channel.unary_stream(*CALL)(REQUEST))
    except grpc.RpcError as error:
        return messages, error.code().name
    return messages, "OK"


server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
handler = grpc.unary_stream_rpc_method_handler(stream, StringValue.FromString, StringValue.SerializeToString)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"S": handler})])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
seen = {}
with grpc.insecure_channel(address) as channel:
    seen["grpcio"] = end(channel)
for mode in (RecordMode.ALL, RecordMode.NONE):
    with RecordingChannel(Cassette(FOLDER / "cassette.yaml", record_mode=mode), address) as recording:
        seen[f"grpcvcr, {mode.name}"] = end(recording.channel)
server.stop(None).wait()
kept = [line.strip() for line in (FOLDER / "cassette.yaml").read_text().splitlines() if "code:" in line]
print(*(f"{name}: {messages}, {code}" for name, (messages, code) in seen.items()), f"cassette: {kept}", sep="\n")
right = list(seen.values()) == [(["one", "two"], "UNAVAILABLE"), (["one", "two"], "OK"), (["one", "two"], "OK")]
sys.exit(not (right and kept == ["code: UNAVAILABLE"]))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
