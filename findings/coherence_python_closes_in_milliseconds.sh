#!/usr/bin/env bash
# Coherence's client for Python allows an outage of 30 seconds, and closes its session within one, but not its channel.
#
# Versions: coherence-client 2.0.4 with grpcio 1.73.0; Python 3.11 or newer, Linux. The option
# `session_disconnect_seconds`, 30 by default, is "the maximum time, in seconds, that a session may remain in a
# disconnected state without successfully reconnecting". A session connects to a gRPC server through a relay, as through
# a load balancer. The server is killed: from then on, the relay ends each connection after half a second, since nothing
# answers behind it. Ten seconds after the server's death the program closes its session.
#
# Seen: the session is closed about half a second after the server's death, with the event CLOSED, and a further use of
# it raises "Session has been closed.": the client counts milliseconds, and compares them with the 30. So a restart of
# the server costs a program its session, though it allows half a minute. Nor is the close whole: it cancels the task
# that it runs in, and so ends halfway, without a word. The channel stays open and connects again and again, and the
# program's own `close` does not close it either, as the session counts as closed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet coherence-client==2.0.4 grpcio==1.73.0
cat > "$folder/server.py" <<'PYTHON'
import concurrent.futures
import grpc

server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))  # the session begins with a call that it may lack
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination(100)
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import asyncio, os, pathlib, subprocess, sys, time
from coherence import Options, Session
from coherence.event import SessionLifecycleEvent

folder = pathlib.Path(sys.argv[1])
connections = []


class Relay:
    """Pass bytes between clients and the server; once it is dead, end each connection after half a second."""

    def __init__(self, server):
        self.server = server

    async def serve(self, reader, writer):
        connections.append(time.monotonic())
        try:
            behind = await asyncio.open_connection("127.0.0.1", self.server)
        except OSError:
            await asyncio.sleep(0.5)
        else:
            await asyncio.wait(
                [asyncio.create_task(self.copy(reader, behind[1])), asyncio.create_task(self.copy(behind[0], writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        writer.close()

    async def copy(self, reader, writer):
        try:
            while read := await reader.read(4096):
                writer.write(read)
        except OSError:
            pass


async def main():
    process = subprocess.Popen([sys.executable, folder / "server.py"], stdout=subprocess.PIPE, text=True)
    listener = await asyncio.start_server(Relay(int(process.stdout.readline())).serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    session = await Session.create(Options(address=f"127.0.0.1:{port}"))
    allowed = session.options.session_disconnect_timeout_seconds
    closes = []
    session.on(SessionLifecycleEvent.CLOSED, lambda: closes.append(time.monotonic()))
    await asyncio.sleep(1)
    before = session.closed
    process.kill()
    process.wait()
    died = time.monotonic()
    await asyncio.sleep(10)
    try:
        await session.get_cache("a")
        used = "a cache"
    except RuntimeError as error:
        used = str(error)
    await session.close()
    ended = time.monotonic()
    await asyncio.sleep(10)
    after = [each for each in connections if each > ended]
    listener.close()
    took = closes[0] - died if closes else None
    print(f"allowed: {allowed} s; closed before the server's death: {before}, {took:.2f} s after it: {session.closed}")
    print(f"get_cache: {used}")
    print(f"connections after the program's close: {len(after)}; the channel is closed: {session.channel is None}")
    right = allowed == 30 and not before and session.closed and len(closes) == 1 and took < 9
    return right and used == "Session has been closed." and len(after) >= 2 and session.channel is not None


right = asyncio.run(main())
sys.stdout.flush()
os._exit(not right)  # the channel would be collected with complaints
PYTHON
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
timeout 120 "$folder/venv/bin/python" "$folder/see.py" "$folder"
