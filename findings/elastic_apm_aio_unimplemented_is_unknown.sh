#!/usr/bin/env bash
# With Elastic's APM agent an asyncio server in Python answers UNKNOWN for a method it lacks: health checks shun it.
#
# Versions: elastic-apm 6.26.2, grpcio 1.85.3; Python 3.11 or newer, Linux. `elasticapm.instrument()` puts an
# interceptor of the agent into each server that the process makes. gRPC's statuses have UNIMPLEMENTED for a method that
# a server does not have, and clients rely on it: one with health checks (gRFC A17) takes a server that answers so for
# Health/Watch as one without that service, and calls it; any other error is a server that is not healthy. A server with
# one method, and without a health service, is called by such a client and without health checks, and asked for a
# method that it lacks; once each with threads and with asyncio, without the agent and with it.
#
# Seen: without the agent, and with it on the server with threads, all calls succeed and the missing method is
# UNIMPLEMENTED. On the asyncio server with the agent it is UNKNOWN, "'NoneType' object has no attribute
# 'request_streaming'": the interceptor reads the handler of the method, and there is none. The client with health
# checks then fails its call with UNAVAILABLE: the server is up and answers all others, and gets none of its calls. So
# turning on the agent takes a service away from its clients with health checks, and the server's side looks well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet elastic-apm==6.26.2 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, json, logging, os, sys
import grpc
import grpc.aio
import elasticapm

logging.disable()  # of each failed call
HEALTH = {"healthCheckConfig": {"serviceName": ""}, "loadBalancingConfig": [{"round_robin": {}}]}


def method(request, context):
    return b""


async def async_method(request, context):
    return b""


def handle(behaviour):
    return grpc.method_handlers_generic_handler("a", {"Has": grpc.unary_unary_rpc_method_handler(behaviour)})


def end(port, path, options=()):
    """Return how a call ends."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        try:
            channel.unary_unary(path)(b"", timeout=20)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


def see(port):
    """Return how a call ends, one with health checks, and one to a method that is missing."""
    options = [("grpc.service_config", json.dumps(HEALTH))]
    return end(port, "/a/Has"), end(port, "/a/Has", options), end(port, "/a/Lacks")


def see_threads():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([handle(method)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    seen = see(port)
    server.stop(None).wait()
    return seen


async def see_asyncio():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([handle(async_method)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    seen = await asyncio.to_thread(see, port)
    await server.stop(None)
    return seen


seen = {"threads": see_threads(), "asyncio": asyncio.run(see_asyncio())}
elasticapm.Client(service_name="a", disable_send=True, central_config=False)
elasticapm.instrument()
seen |= {"threads, agent": see_threads(), "asyncio, agent": asyncio.run(see_asyncio())}
for name, ends in seen.items():
    print(f"{name}: a call {ends[0]}, with health checks {ends[1]}, a missing method {ends[2]}")
sys.stdout.flush()
good, bad = ("OK", "OK", "UNIMPLEMENTED"), ("OK", "UNAVAILABLE", "UNKNOWN")
os._exit(list(seen.values()) != [good, good, good, bad])
PYTHON
export GRPC_VERBOSITY=NONE
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 120 "$folder/venv/bin/python" "$folder/see.py"
