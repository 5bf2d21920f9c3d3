#!/usr/bin/env bash
# With durabletask's `retry_timeout`, an activity whose retry succeeded fails afterwards, with the error of its past.
#
# Versions: durabletask 1.12.0 with its own in-memory backend, grpcio 1.85.3; Python 3.11 or newer, Linux. An
# orchestrator is replayed from its history at each step, so all that it depends on must come out the same each time;
# for this, durabletask has `current_utc_datetime` instead of the clock. `RetryPolicy` documents `retry_timeout` as "The
# maximum amount of time to spend retrying the operation". An activity fails once and succeeds when it is called again,
# half a second later. Its orchestrator then waits on a timer and returns the result: without a `retry_timeout`, with
# one of 3 s and a timer of 0.2 s, and with one of 3 s and a timer of 5 s.
#
# Seen: all three activities run twice and succeed within a second. The first two orchestrations return the result. The
# third one fails after the timer with "Activity task #1 failed: no", the error of the attempt that was repeated:
# `RetryableTask.compute_next_delay` reads the clock in each replay, finds that 3 s are over, and decides anew that the
# failure of long ago gets no retry. So an order that has been charged at the second attempt is reported as not
# charged, and its compensation runs, as soon as the orchestration outlives the timeout of its retries.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet durabletask==1.12.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import collections, datetime, logging, socket, sys
from durabletask import client, task, worker
from durabletask.testing import create_test_backend

logging.disable()  # of the failure of an orchestration
attempts = collections.defaultdict(list)  # of each activity: how its attempts end
cases = {"no timeout": (None, 5), "timeout, short timer": (3, 0.2), "timeout, long timer": (3, 5)}


def seconds(number):
    return datetime.timedelta(seconds=number)


def charge(context, name):
    """Fail at first."""
    attempts[name].append("fails" if not attempts[name] else "succeeds")
    if attempts[name] == ["fails"]:
        raise RuntimeError("no")
    return "charged"


def order(context, name):
    timeout, wait = cases[name]
    retry_timeout = None if timeout is None else seconds(timeout)
    policy = task.RetryPolicy(
        first_retry_interval=seconds(0.5), max_number_of_attempts=5, retry_timeout=retry_timeout
    )
    charged = yield context.call_activity(charge, input=name, retry_policy=policy)
    yield context.create_timer(seconds(wait))
    return charged


with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
backend = create_test_backend(port=port)
ends = {}
with worker.TaskHubGrpcWorker(host_address=f"127.0.0.1:{port}") as hub:
    hub.add_orchestrator(order)
    hub.add_activity(charge)
    hub.start()
    caller = client.TaskHubGrpcClient(host_address=f"127.0.0.1:{port}")
    for name in cases:
        instance = caller.schedule_new_orchestration(order, input=name)
        state = caller.wait_for_orchestration_completion(instance, timeout=60)
        failure = state.failure_details
        ends[name] = state.serialized_output if failure is None else failure.message.split(": ", 1)[1]
        print(f"{name}: the attempts: {', '.join(attempts[name])}; {state.runtime_status.name}, {ends[name]}")
    hub.stop()
backend.stop()
right = all(attempts[name] == ["fails", "succeeds"] for name in cases)
sys.exit(not (right and list(ends.values()) == ['"charged"', '"charged"', "Activity task #1 failed: no"]))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
