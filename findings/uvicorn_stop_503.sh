#!/usr/bin/env bash
# A stopping uvicorn (HTTP/2) sends no GOAWAY while calls run, and answers new calls on the connection with HTTP 503.
#
# Versions: uvicorn 0.54.0 with zttp 0.0.35 (`--http zttp --http2`), grpcio 1.85.3 as the client; Python 3.11 or newer,
# Linux x86_64. A small ASGI application answers gRPC calls. uvicorn gets SIGTERM while three calls of three seconds run
# on one connection; 0.5 s later the client makes another one.
#
# Seen: 3 of 3 running calls are answered; the new one ends at once with UNAVAILABLE "Received http2 header with status:
# 503". So a retry on the same connection gets the same answer, for as long as any old call runs, although a new
# connection could reach another server.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet uvicorn==0.54.0 zttp==0.0.35 grpcio==1.85.3
cat > "$folder/app.py" <<'PYTHON'
import asyncio


async def app(scope, receive, send):
    """Answer a gRPC call with an empty message after as many seconds as the last part of its path says."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(float(scope["path"].rpartition("/")[2]))
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": bytes(5), "more_body": False})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")], "more_trailers": False})
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import signal, socket, subprocess, sys, time
import grpc

with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--http", "zttp", "--http2"]


def outcome(call):
    try:
        call.result()
        return "OK"
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"


def stop(new_call):
    """Stop the server while three calls run; return how they end, and how a call that is made meanwhile does."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            begin = lambda seconds: channel.unary_unary(f"/a.B/{seconds}").future(b"", timeout=30, wait_for_ready=True)
            assert outcome(begin(0)) == "OK"
            running = [begin(3) for _ in range(3)]
            time.sleep(1)
            server.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            new = outcome(begin(0)) if new_call else None
            return [outcome(call) for call in running], new
    finally:
        server.kill()
        server.wait()


running, new = stop(new_call=True)
print(f"{running.count('OK')} of 3 running calls answered; the new call: {new!r}")
sys.exit(not (running.count("OK") == 3 and new.startswith("UNAVAILABLE") and "status: 503" in new))
PYTHON
cd "$folder"
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY venv/bin/python see.py
