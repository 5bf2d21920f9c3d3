#!/usr/bin/env bash
# Behind granian a gRPC call can fail with the right status, but cannot succeed.
#
# Versions: granian 2.8.9 (`--interface=asgi --http=2`), grpcio 1.85.3 as the client; Python 3.11 or newer, Linux
# x86_64. granian speaks HTTP/2 and ASGI, but refuses ASGI's `http.response.trailers` ("Unsupported ASGI message"). A
# small application answers one method with a message and trailers, the other with grpc-status 8 in its headers.
#
# Seen: the error arrives as RESOURCE_EXHAUSTED. The answer's message arrives too, but without a status, so the call
# ends with UNKNOWN "Data frame with END_STREAM flag received": the work is done, and each caller believes that it
# failed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(grpcio==1.85.3 granian==2.8.9)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/app.py" <<'PYTHON'
async def app(scope, receive, send):
    """Answer with a message, or with RESOURCE_EXHAUSTED."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/grpc")]
    if scope["path"] == "/a.B/Full":
        headers += [(b"grpc-status", b"8"), (b"grpc-message", b"full")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": bytes(5)})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import contextlib, os, pathlib, signal, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
COMMANDS = {
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


with channel_to("granian") as channel:
    seen = {}
    for method in ("Answer", "Full"):
        call, messages = channel.unary_stream(f"/a.B/{method}")(b"a", timeout=20, wait_for_ready=True), 0
        try:
            for _ in call:
                messages += 1
        except grpc.RpcError:
            pass
        seen[method] = (messages, call.code().name)
print(seen)
sys.exit(seen != {"Answer": (1, "UNKNOWN"), "Full": (0, "RESOURCE_EXHAUSTED")})
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
