#!/usr/bin/env bash
# One new call while Hypercorn stops gracefully makes it drop all calls that run on the connection.
#
# Versions: Hypercorn 0.18.0, h2 4.4.1, grpcio 1.85.3 as the client; Python 3.11 or newer, Linux x86_64.
# A small ASGI application answers gRPC calls. Hypercorn runs with `--graceful-timeout 20` and gets SIGTERM while three
# calls of three seconds run on one connection.
#
# Seen: without a further call, 3 of 3 are answered. If the client makes one more call on the connection 0.5 s after
# SIGTERM, 0 of 3 are: they end at once with UNKNOWN "Received http2 header with status: 500", and the new one ends
# with INTERNAL (RST_STREAM 0). No GOAWAY announces the stop, so a busy gRPC client always makes a further call.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet hypercorn==0.18.0 h2==4.4.1 grpcio==1.85.3
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
command = [sys.executable, "-m", "hypercorn", "app:app", "--bind", f"127.0.0.1:{port}", "--graceful-timeout", "20"]


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


quiet, _ = stop(new_call=False)
busy, new = stop(new_call=True)
answered = f"{busy.count('OK')} of 3, {busy[0]!r}"
print(f"without a new call: {quiet.count('OK')} of 3 answered; with one: {answered}; it: {new!r}")
sys.exit(not (quiet.count("OK") == 3 and busy.count("OK") == 0 and new.startswith("INTERNAL")))
PYTHON
cd "$folder"
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY venv/bin/python see.py
