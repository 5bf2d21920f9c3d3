#!/usr/bin/env bash
# One UNAVAILABLE of the only node, and hiero-sdk-python makes no call for 16 seconds: "All nodes are unhealthy".
#
# Versions: hiero-sdk-python 0.3.0, grpcio 1.85.3 for a node with one of Hedera's methods; Python 3.11 or newer, Linux.
# `max_attempts`, 10 by default, is documented as the "maximum number of execution attempts", with "backoff delays"
# between them, and `MaxAttemptsError` as the error when they are used up. A network has one node, as a local one does
# ("solo"). The node fails one query of a balance with UNAVAILABLE and answers all others. One client asks twice a
# second. The same is done with a query that names two of three nodes, both of which fail.
#
# Seen: the query that fails is attempted once, without a retry: RuntimeError "All nodes are unhealthy" at once, with no
# status, and not even the gRPC error as its cause. Every other query of the client gets the same within 10 ms for 16 s,
# while the node is well and is not called. With two nodes named there is one attempt at each, within 50 ms and without
# a delay, then the same error. After 16 s all is well; each further failure doubles the time, up to an hour. So a call
# lost in a node's restart is an outage of 16 s, and `except MaxAttemptsError` or `grpc.RpcError` misses it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet hiero-sdk-python==0.3.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, sys, time
import grpc
from hiero_sdk_python import AccountId, Client, CryptoGetAccountBalanceQuery, Network
from hiero_sdk_python.hapi.services import crypto_service_pb2_grpc, response_pb2
from hiero_sdk_python.node import _Node

logging.disable()  # of each failed call


class Node(crypto_service_pb2_grpc.CryptoServiceServicer):
    """Fails some queries, then answers."""

    calls = failures = 0

    def cryptoGetBalance(self, request, context):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        response = response_pb2.Response()
        response.cryptogetAccountBalance.accountID.accountNum = 2
        return response


node = Node()
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
crypto_service_pb2_grpc.add_CryptoServiceServicer_to_server(node, server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()


def client(nodes):
    """Return a client of a network of so many nodes, all at the same address."""
    known = [_Node(AccountId(0, 0, number), f"127.0.0.1:{port}", None) for number in range(3, 3 + nodes)]
    return Client(Network("solo", nodes=known))


def query(client, *numbers):
    """Return the end of a query, the calls that it made and its seconds."""
    before, start = node.calls, time.monotonic()
    balance = CryptoGetAccountBalanceQuery(account_id=AccountId(0, 0, 2))
    if numbers:
        balance.set_node_account_ids([AccountId(0, 0, number) for number in numbers])
    try:
        balance.execute(client)
        end = "OK"
    except Exception as error:
        end = f"{type(error).__name__} {error}; cause: {error.__cause__}"
    return end, node.calls - before, time.monotonic() - start


single = client(1)
first = query(single)
node.failures = 1
failed, start, refused = query(single), time.monotonic(), []
while (again := query(single))[0] != "OK" and time.monotonic() - start < 30:
    refused.append(again)
    time.sleep(0.5)
outage = time.monotonic() - start
node.failures = 2
named = query(client(3), 3, 4)
print(f"{single.max_attempts} attempts allowed; the query that fails: {failed}")
print(f"{len(refused)} queries within {outage:.1f} s after it: {sorted({end[:2] for end in refused})}; then {again}")
print(f"two nodes named, both fail: {named}")
server.stop(None)
gone = "RuntimeError All nodes are unhealthy; cause: None"
right = (first[:2], failed[:2], again[:2], named[:2]) == (("OK", 1), (gone, 1), ("OK", 1), (gone, 2))
sys.exit(not (right and {end[:2] for end in refused} == {(gone, 0)} and 14 < outage < 25 and named[2] < 1))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
