#!/usr/bin/env bash
# Nacos's client for Python does not move when its server tells it to, and repeats refusals, but not failed calls.
#
# Versions: nacos-sdk-python 3.2.0 with grpcio 1.85.3 and protobuf 7.36.2; Python 3.11 or newer, Linux. A Nacos server
# tells a client by a ConnectResetRequest on its stream to connect to another server of the cluster, to spread the load
# or before maintenance; the client registers a handler for it. Two servers with Nacos's protocol form the client's
# cluster. The client connects to one, which sends a ClientDetectionRequest, then a ConnectResetRequest that names the
# other one. Then the client publishes two configurations: the server refuses one with an error response, as for a
# missing right, and fails the other one with UNAVAILABLE.
#
# Seen: the client answers the first request. It does not answer the second one, and stays where it is for the ten
# seconds that the script waits: the table of the messages that the client can read lacks that one, so its handler is
# never called. The refused call reaches the server three times, and the one that failed with UNAVAILABLE once: the
# client's loop for three tries catches only the client's own exceptions, among which gRPC's errors are not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nacos-sdk-python==3.2.0 grpcio==1.85.3 protobuf==7.36.2
cat > "$folder/see.py" <<'PYTHON'
import asyncio, collections, json, os, pathlib, sys
import grpc
from google.protobuf.any_pb2 import Any
from v2.nacos import ClientConfigBuilder, ConfigParam, NacosConfigService
from v2.nacos.transport.grpcauto import nacos_grpc_service_pb2 as pb2
from v2.nacos.transport.grpcauto import nacos_grpc_service_pb2_grpc as pb2_grpc

folder = pathlib.Path(sys.argv[1])


def payload(kind, **body):
    return pb2.Payload(metadata=pb2.Metadata(type=kind), body=Any(value=json.dumps(body).encode()))


class Server(pb2_grpc.RequestServicer, pb2_grpc.BiRequestStreamServicer):
    def __init__(self):
        self.server = grpc.aio.server()
        self.setups = 0
        self.answers = []
        self.publishes = collections.Counter()
        self.other = None
        pb2_grpc.add_RequestServicer_to_server(self, self.server)
        pb2_grpc.add_BiRequestStreamServicer_to_server(self, self.server)

    async def start(self):
        self.port = self.server.add_insecure_port("127.0.0.1:0") - 1000  # clients add 1000 for gRPC
        await self.server.start()

    async def request(self, request, context):
        kind = request.metadata.type
        if kind == "ConfigPublishRequest":
            name = json.loads(request.body.value)["dataId"]
            self.publishes[name] += 1
            if name == "failed":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
            return payload("ErrorResponse", resultCode=500, errorCode=403, message="no right")
        return payload(kind.replace("Request", "Response"), resultCode=200, connectionId="1")

    async def requestBiStream(self, requests, context):
        async for request in requests:
            kind = request.metadata.type
            if kind == "ConnectionSetupRequest":
                self.setups += 1
                yield payload("ClientDetectionRequest", requestId="1")
                at = {"serverIp": "127.0.0.1", "serverPort": str(self.other.port)}
                yield payload("ConnectResetRequest", requestId="2", **at)
            else:
                self.answers.append(kind)


async def publish(client, name):
    """Return what the client raises for a configuration."""
    try:
        return await asyncio.wait_for(client.publish_config(ConfigParam(data_id=name, group="a", content="b")), 30)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def main():
    servers = [Server(), Server()]
    for server, other in zip(servers, reversed(servers)):
        server.other = other
        await server.start()
    addresses = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    config = ClientConfigBuilder().server_address(addresses).log_dir(str(folder / "log")).build()
    config.set_cache_dir(str(folder / "cache"))
    client = await NacosConfigService.create_config_service(config)
    for _ in range(200):
        if any(server.answers for server in servers):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(10)
    ends = [await publish(client, name) for name in ("refused", "failed")]
    first, second = sorted(servers, key=lambda server: -server.setups)
    calls = dict(first.publishes)
    print(f"connections: {first.setups} and {second.setups}; answers: {first.answers}")
    print(f"publishes at the server: {calls}; they raise {ends}")
    right = (first.setups, second.setups) == (1, 0) and first.answers == ["ClientDetectionResponse"]
    return right and calls == {"refused": 3, "failed": 1} and all("NacosException" in str(end) for end in ends)


right = asyncio.run(main())
sys.stdout.flush()
os._exit(not right)  # the client's own tasks and threads are still running
PYTHON
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
HOME=$folder timeout 120 "$folder/venv/bin/python" "$folder/see.py" "$folder"
