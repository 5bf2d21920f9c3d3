#!/usr/bin/env bash
# immudb's Python client drops its global timeout in transactions, and keeps a session alive only until one ping fails.
#
# Versions: immudb-py 1.5.0, grpcio 1.85.3 for a server with immudb's protocol; Python 3.11 or newer, Linux. `timeout`
# is documented as the "global timeout for GRPC requests"; without one, requests "will hang until the server responds".
# Of `openManagedSession` it says that the client "will automatically send keepalive packets". A server takes six
# seconds for each statement and each commit, and notes how much time they have. It fails the third keepalive with
# UNAVAILABLE. A client with a timeout of 2 s opens a managed session with a keepalive every half second. It runs a
# statement in the session, and one in a transaction, which it commits.
#
# Seen: the statement in the session has 2 s, and ends with DEADLINE_EXCEEDED. The one in the transaction and the commit
# have no deadline, and each returns after six seconds: `Tx.makeTransactionInterceptedStub` builds its stub without the
# interceptor that adds the timeout. If the server hangs at a commit, so does the caller, with a timeout set. There are
# three keepalives in all of 14 s: the error of the third ends the thread that sends them (`ManagedSession.manage`),
# with a traceback on standard error and nothing for the caller. So once a single ping fails, such as in a restart of a
# proxy, the session lasts as long as the server keeps idle ones, though each further ping would succeed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet immudb-py==1.5.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, os, sys, threading, time
import grpc
from google.protobuf import empty_pb2
from immudb import ImmudbClient
from immudb.grpc import schema_pb2, schema_pb2_grpc

logging.disable()  # of aborts
threading.excepthook = lambda failed: None  # which would print the error of the thread of keepalives
deadlines, keepalives = [], []


class Immudb(schema_pb2_grpc.ImmuServiceServicer):
    def OpenSession(self, request, context):
        return schema_pb2.OpenSessionResponse(sessionID="a")

    def KeepAlive(self, request, context):
        keepalives.append(time.monotonic())
        if len(keepalives) == 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        return empty_pb2.Empty()

    def NewTx(self, request, context):
        return schema_pb2.NewTxResponse(transactionID="b")

    def work(self, context):
        """Note how much time a call has; with less than a day, it has a deadline."""
        left = context.time_remaining()
        deadlines.append(round(left) if left < 86400 else None)
        time.sleep(6)

    def SQLExec(self, request, context):
        self.work(context)
        return schema_pb2.SQLExecResult()

    def TxSQLExec(self, request, context):
        self.work(context)
        return empty_pb2.Empty()

    def Commit(self, request, context):
        self.work(context)
        return schema_pb2.CommittedSQLTx()


def see(call, *arguments):
    """Return how a call ends, and after how many seconds."""
    began = time.monotonic()
    try:
        call(*arguments)
        end = "OK"
    except grpc.RpcError as error:
        end = error.code().name
    return end, round(time.monotonic() - began)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(9))
schema_pb2_grpc.add_ImmuServiceServicer_to_server(Immudb(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
client = ImmudbClient(f"127.0.0.1:{port}", timeout=2)
session = client.openManagedSession("user", "password", keepAliveInterval=0.5).__enter__()
began = time.monotonic()
transaction = session.newTx()
calls = {"in the session": (client.sqlExec, "INSERT"), "in a transaction": (transaction.sqlExec, "INSERT")}
calls["commit"] = (transaction.commit,)
ends = {name: see(*call) for name, call in calls.items()}
for (name, (end, seconds)), deadline in zip(ends.items(), deadlines):
    print(f"{name}: {end} after {seconds} s; deadline at the server: {deadline} s")
print(f"{len(keepalives)} keepalives in {time.monotonic() - began:.0f} s")
first, *others = ends.values()
right = first[0] == "DEADLINE_EXCEEDED" and first[1] < 5 and deadlines == [2, None, None] and len(keepalives) == 3
sys.stdout.flush()
os._exit(not (right and all(end == "OK" and seconds >= 6 for end, seconds in others)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
