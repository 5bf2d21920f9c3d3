#!/usr/bin/env bash
# flytekit makes a call that fails four times within milliseconds, also if it is refused, and eight times on UNKNOWN.
#
# Versions: flytekit 1.16.31, grpcio 1.85.3 for a server with Flyte's methods; Python 3.11 or newer, Linux. flytekit's
# `rpc_retries` is 3 by default. gRPC's guide to statuses says of UNAVAILABLE alone that it "can be corrected by
# retrying with a backoff"; a Python server whose method raises ends the call with UNKNOWN. A client without
# authentication registers a project at a server that fails this with UNAVAILABLE, NOT_FOUND, PERMISSION_DENIED and
# INVALID_ARGUMENT, or whose method raises.
#
# Seen: four calls each time, all within a few milliseconds: there is no backoff, so that the four are one in any outage
# that a retry could survive, and four times the load. A method that raises runs eight times: below the retries, UNKNOWN
# is taken for a matter of credentials, as UNAUTHENTICATED is, and each call is made again. So a request that breaks a
# server, or a write that fails after it has taken effect, is made eight times by each caller.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flytekit==1.16.31 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, sys, time
import grpc
from flytekit.clients.friendly import SynchronousFlyteClient
from flytekit.configuration import PlatformConfig
from flytekit.models.project import Project

logging.disable()  # of each failed call
times = []


class Failing(grpc.GenericRpcHandler):
    """Fails each call with its code, or raises."""

    code = None

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.fail)

    def fail(self, request, context):
        times.append(time.monotonic())
        if self.code is None:
            raise RuntimeError("no")
        context.abort(self.code, "no")


failing = Failing()
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[failing])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
client = SynchronousFlyteClient(PlatformConfig(endpoint=f"127.0.0.1:{port}", insecure=True))


def calls(code):
    """Return how many calls the server gets, and within how many seconds."""
    failing.code = code
    times.clear()
    try:
        client.register_project(Project("a", "a", "a"))
    except Exception as error:
        end = type(error).__name__
    print(f"{code.name if code else 'raises'}: {end} after {len(times)} calls within {times[-1] - times[0]:.3f} s")
    return len(times), times[-1] - times[0]


codes = grpc.StatusCode
refusals = codes.NOT_FOUND, codes.PERMISSION_DENIED, codes.INVALID_ARGUMENT
seen = [calls(code) for code in (codes.UNAVAILABLE, *refusals, None)]
server.stop(None)
sys.exit(not ([count for count, _ in seen] == [4, 4, 4, 4, 8] and all(seconds < 0.5 for _, seconds in seen)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
