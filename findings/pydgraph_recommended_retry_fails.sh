#!/usr/bin/env bash
# The retry that pydgraph recommends fails at its second attempt, and `async with` discards what `with` commits.
#
# Versions: pydgraph 25.2.0 with grpcio 1.85.3; Python 3.11 or newer, Linux. Dgraph ends the commit of a transaction
# with ABORTED if another one was in its way. The docstring of pydgraph's module `retry` has as "recommended" a
# transaction as a context manager around `async for attempt in retry_async()`, whose body mutates and commits. A server
# with Dgraph's protocol aborts the first commit that it gets and takes all others. A program uses the recommended form,
# and then one with a new transaction in each attempt. Last, it mutates without `commit` in `async with` and in `with`,
# which, says the README, commits at its end.
#
# Seen: the recommended form makes one attempt and raises TransactionError "Transaction has already been committed or
# discarded", which is not retried and hides the ABORTED: a transaction is over with its first commit, and the retry
# uses the same one. With a new transaction in each attempt, the second commit succeeds. `with` commits; `async with`
# discards, as a comment in an example of the README says, so the mutation is lost without an error. So code that was
# written by the book works until two writers meet, and a program that moves to asyncio writes nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pydgraph==25.2.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, logging, os, sys
import grpc
import pydgraph
from pydgraph.proto import api_pb2, api_pb2_grpc

logging.disable()  # of aborts
ALICE = {"name": "Alice"}
calls = []


class Dgraph(api_pb2_grpc.DgraphServicer):
    busy = True

    def Query(self, request, context):
        calls.append("mutate")
        return api_pb2.Response(txn=api_pb2.TxnContext(start_ts=request.start_ts or len(calls)))

    def CommitOrAbort(self, request, context):
        calls.append("discard" if request.aborted else "commit")
        if self.busy and not request.aborted:
            self.busy = False
            context.abort(grpc.StatusCode.ABORTED, "Transaction has been aborted. Please retry")
        return api_pb2.TxnContext()


dgraph = Dgraph()
server = grpc.server(concurrent.futures.ThreadPoolExecutor(5))
api_pb2_grpc.add_DgraphServicer_to_server(dgraph, server)
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()


async def recommended(client):
    async with client.txn() as txn:
        async for attempt in pydgraph.retry_async():
            with attempt:
                await txn.mutate(set_obj=ALICE)
                await txn.commit()


async def each_anew(client):
    async for attempt in pydgraph.retry_async():
        with attempt:
            async with client.txn() as txn:
                await txn.mutate(set_obj=ALICE)
                await txn.commit()


async def without_commit(client):
    async with client.txn() as txn:
        await txn.mutate(set_obj=ALICE)


async def see(form, busy):
    """Return how this form ends, and what the server is asked to do."""
    client = pydgraph.AsyncDgraphClient(pydgraph.AsyncDgraphClientStub(address))
    calls.clear()
    dgraph.busy = busy
    try:
        await form(client)
        end = "OK"
    except Exception as error:
        end = f"{type(error).__name__}: {error}"
    await client.close()
    print(f"{form.__name__}: {', '.join(calls)}; {end}")
    return end, list(calls)


async def main():
    return await see(recommended, True), await see(each_anew, True), await see(without_commit, False)


first, second, third = asyncio.run(main())
calls.clear()
with pydgraph.DgraphClient(pydgraph.DgraphClientStub(address)).txn() as txn:
    txn.mutate(set_obj=ALICE)
print(f"the same with the client for threads: {', '.join(calls)}")
right = first[0].startswith("TransactionError: Transaction has already been") and first[1] == ["mutate", "commit"]
right = right and second == ("OK", ["mutate", "commit"] * 2) and third == ("OK", ["mutate", "discard"])
sys.stdout.flush()
os._exit(not (right and calls == ["mutate", "commit"]))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
