#!/usr/bin/env bash
# If a robot is away for some seconds, viam's Python SDK ends the whole program of its caller, with the exit status 0.
#
# Versions: viam-sdk 0.85.1, grpcio 1.85.3 for a server with a robot's protocol; Python 3.11 or newer, Linux. A
# `RobotClient` is documented to check "if the machine is still connected" each ten seconds, and to reconnect "a
# disconnected machine" every second, at most three times (`max_reconnect_attempts`). A client whose server is away for
# good is expected to raise from its calls. Two programs connect to a server, and then do other work for 30 s, each in a
# `try` that catches every Exception; at their end they exit with status 7. One has the default options, the other
# `attempt_reconnect_interval=0`, no reconnection. The server is killed once both are connected.
#
# Seen: the program that does not reconnect works for its 30 s and exits with 7. The one with the defaults is gone some
# 14 s after the connection began, in the middle of its work: after the third failure `RobotClient._check_connection`
# calls `sys.exit()`. In a task of asyncio this leaves the event loop and the program, past every `except Exception`. So
# a restart of one robot ends a service that has others to serve, and with status 0, which tells a supervisor that
# restarts on failure that all is done.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet viam-sdk==0.85.1 grpcio==1.85.3
cat > "$folder/program.py" <<'PYTHON'
import asyncio, sys
from viam.robot.client import RobotClient
from viam.rpc.dial import DialOptions


async def main(address, **options):
    dial = DialOptions(disable_webrtc=True, insecure=True)
    await RobotClient.at_address(address, RobotClient.Options(dial_options=dial, **options))
    print("connected", flush=True)
    for _ in range(30):
        await asyncio.sleep(1)
        print("works", flush=True)


try:
    asyncio.run(main(sys.argv[1], **({"attempt_reconnect_interval": 0} if "once" in sys.argv else {})))
except Exception as error:
    print(f"caught {error!r}")
sys.exit(7)
PYTHON
cat > "$folder/server.py" <<'PYTHON'
import concurrent.futures
import grpc

handler = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
methods = {"ResourceNames": handler, "GetVersion": handler}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("viam.robot.v1.RobotService", methods)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import atexit, pathlib, subprocess, sys

folder = pathlib.Path(sys.argv[1])
processes = []
atexit.register(lambda: [process.kill() for process in processes])


def start(*command):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes.append(subprocess.Popen([sys.executable, folder / command[0], *command[1:]], **pipes))
    return processes[-1]


server = start("server.py")
address = f"127.0.0.1:{server.stdout.readline().strip()}"
programs = {"no reconnection": start("program.py", address, "once"), "defaults": start("program.py", address)}
for program in programs.values():
    while program.stdout.readline().strip() not in ("connected", ""):
        pass
server.kill()
seen = {}
for name, program in programs.items():
    output = program.communicate(timeout=60)[0].split("\n")
    seen[name] = output.count("works"), program.returncode, any("caught" in line for line in output)
    print(f"{name}: works for {seen[name][0]} s, exit status {seen[name][1]}")
worked, *end = seen["defaults"]
sys.exit(not (seen["no reconnection"] == (30, 7, False) and worked < 28 and end == [0, False]))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
