#!/usr/bin/env bash
# The keepalive of Spot's client for Python waits for one lost answer without a deadline, while its policy runs out.
#
# Versions: bosdyn-client 5.2.0 with grpcio 1.85.3 and protobuf 7.36.2; Python 3.11 or newer, Linux. A robot carries out
# a policy, such as "motors off", unless a client checks in often enough; a thread of a PolicyKeepalive does so every
# few seconds, by default three times within the policy's delay. A call of the client that is given no timeout has one
# of 30 seconds. A server with the robot's methods leaves the second check-in without an answer, and answers all others
# at once. A program has a policy of three seconds, and waits for ten.
#
# Seen: the server gets two check-ins and no more, so a robot would turn its motors off, while a check-in made by hand
# on the same channel is answered at once. The thread passes on its own default for the timeout, None, and grpcio takes
# that as no deadline: not even the client's 30 seconds hold. Nothing is raised or logged, and the thread is alive. With
# `rpc_timeout_seconds=1` the check-ins go on. If the server answers one check-in with an internal error of its own, the
# thread ends with that error, while the program in the `with` block goes on and does not hear of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet bosdyn-client==5.2.0 grpcio==1.85.3 protobuf==7.36.2
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, os, sys, threading, time
import grpc
from bosdyn.api import header_pb2
from bosdyn.api.keepalive import keepalive_pb2, keepalive_service_pb2_grpc
from bosdyn.client.keepalive import KeepaliveClient, Policy, PolicyKeepalive

failures = []
kept = []
threading.excepthook = lambda failed: failures.append(failed.exc_type.__name__)
OK = header_pb2.ResponseHeader(error=header_pb2.CommonError(code=header_pb2.CommonError.CODE_OK))
FAILED = header_pb2.ResponseHeader(
    error=header_pb2.CommonError(code=header_pb2.CommonError.CODE_INTERNAL_SERVER_ERROR)
)


class Robot(keepalive_service_pb2_grpc.KeepaliveServiceServicer):
    def __init__(self, second):
        self.second = second
        self.deadlines = []

    def ModifyPolicy(self, request, context):
        response = keepalive_pb2.ModifyPolicyResponse(header=OK, status=keepalive_pb2.ModifyPolicyResponse.STATUS_OK)
        response.added_policy.policy_id = 1
        return response

    def CheckIn(self, request, context):
        left = context.time_remaining()
        self.deadlines.append(None if left is None or left > 1e6 else round(left))
        if len(self.deadlines) == 2 and self.second == "lost":
            threading.Event().wait(100)
        header = FAILED if len(self.deadlines) == 2 and self.second == "failed" else OK
        return keepalive_pb2.CheckInResponse(header=header, status=keepalive_pb2.CheckInResponse.STATUS_OK)


def see(second, **options):
    """Return the deadlines of ten seconds' check-ins, then that of one by hand, and whether the thread is alive."""
    robot = Robot(second)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    keepalive_service_pb2_grpc.add_KeepaliveServiceServicer_to_server(robot, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    kept.append(server)
    client = KeepaliveClient()
    client.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    policy = Policy()
    policy.add_controlled_motors_off_action(3)
    keeper = PolicyKeepalive(client, policy, **options)
    keeper.__enter__()  # its end would wait for the thread
    time.sleep(10)
    deadlines = list(robot.deadlines)
    client.check_in(1)
    by_hand = robot.deadlines[-1]
    alive = keeper._thread.is_alive()
    print(f"{second}, {options}: check-ins {len(deadlines)}, deadlines {set(deadlines)}, by hand {by_hand}; {alive=}")
    return len(deadlines), set(deadlines), by_hand, alive


right = see("lost") == (2, {None}, 30, True) and failures == []
checks, deadlines, _, alive = see("lost", rpc_timeout_seconds=1)
right = right and checks >= 5 and deadlines == {1} and alive
right = right and see("failed") == (2, {None}, 30, False)
print("raised in the threads:", failures)
sys.stdout.flush()
os._exit(not (right and failures == ["InternalServerError"]))
PYTHON
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
timeout 120 "$folder/venv/bin/python" "$folder/see.py"
