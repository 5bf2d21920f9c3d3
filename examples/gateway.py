"""A gRPC service that keeps counters in etcd. A commit reads, computes and writes by compare-and-swap, without a lock.

If the comparison fails, another commit was faster. The service then writes nothing and answers ABORTED, and the client
decides what to do. A retry starts over, so it computes with the value that the other commit wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from examples.protos import counters, counters_services, etcd, etcd_services
from grpc_backoff import aio

__all__ = ["Gateway", "serving"]

_GRACE = 1.0
"""How long to wait for running calls at the end, in seconds. There are none once all client channels are closed."""


class Gateway(counters_services.CountersServicer):  # type: ignore[name-defined,misc] # generated
    """The service: `Commit` for clients, and `read` for checks."""

    def __init__(self, store: grpc.aio.Channel, work: float) -> None:
        """Keep the counters in the etcd behind this channel. Each commit computes for `work` seconds."""
        self._store = etcd_services.KVStub(store)
        self._work = work

    async def Commit(self, request: Any, context: Any) -> Any:  # noqa: N802 - the method's name
        """Add to a counter by compare-and-swap; abort with ABORTED if another commit was faster."""
        value, revision = await self.read(request.key)
        await asyncio.sleep(self._work)
        value += request.change
        if not await self._swap(request.key, revision, value):
            await context.abort(grpc.StatusCode.ABORTED, "another commit to this key was faster")
        return counters.CommitResponse(value=value)

    async def read(self, key: str) -> tuple[int, int]:
        """Return a counter's value and the revision at which it was written; both are 0 for a counter never written."""
        found = await self._store.Range(etcd.RangeRequest(key=key.encode()))
        return (int(found.kvs[0].value), found.kvs[0].mod_revision) if found.kvs else (0, 0)

    async def _swap(self, key: str, revision: int, value: int) -> bool:
        """Write a value unless the key has changed since `revision`; return whether it was written."""
        name = key.encode()
        unchanged = etcd.Compare(key=name, target=etcd.Compare.MOD, result=etcd.Compare.EQUAL, mod_revision=revision)
        put = etcd.RequestOp(request_put=etcd.PutRequest(key=name, value=str(value).encode()))
        answer = await self._store.Txn(etcd.TxnRequest(compare=[unchanged], success=[put]))
        return bool(answer.succeeded)


@contextlib.asynccontextmanager
async def serving(etcd_target: str, work: float) -> AsyncIterator[tuple[str, Gateway]]:
    """Run the service on a free loopback port; yield its target and the service."""
    async with aio.insecure_channel(etcd_target) as store:
        server, gateway = grpc.aio.server(), Gateway(store, work)
        counters_services.add_CountersServicer_to_server(gateway, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}", gateway
        finally:
            await server.stop(_GRACE)
