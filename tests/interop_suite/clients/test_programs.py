"""The peers' programs, run for real: against a working server, in plaintext and with TLS, and without a server."""

from __future__ import annotations

import socket

import pytest

from grpc_judge.clients.peer import find_peers
from grpc_judge.clients.peer_process import PeerProcess
from grpc_judge.flaky import FlakyServer, Working
from grpc_judge.matrix.trial import Trust

PEERS = [peer for peer in find_peers() if not peer.missing and not peer.build]
"""The peers written in Python. Peers in other languages must be built first and are covered by each run of the suite.
"""
FAIL_FAST = {"grpclib", "connectrpc"}
"""The peers that cannot wait for READY."""


@pytest.fixture(scope="module")
def trust(tmp_path_factory):
    return Trust.make(tmp_path_factory.mktemp("trust"))


async def account_of(peer, target, *, settings=None, ca=None):
    async with PeerProcess(peer, target, 0.5, settings or {}, ca) as running:
        await running.ready()
        await running.begin()
        return await running.account()


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.folder.name)
async def test_every_call_on_a_working_server_is_answered(peer, tls, trust):
    """IO-4: a peer calls continuously on one connection, and accounts for every call. Takes two seconds."""
    async with FlakyServer(Working(), trust.tls if tls else None) as server:
        account = await account_of(peer, server.target, ca=trust.ca if tls else None)
        (visit,) = server.timeline().visits
    calls = account.calls
    assert calls.made == calls.ok > 4
    assert (calls.failed, calls.unfinished) == ({}, 0)
    assert {request.path for request in visit.requests} == {"/grpc.testing.TestService/EmptyCall"}
    assert len({request.call for request in visit.requests}) == len(visit.requests) == calls.made
    assert account.versions["python"]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.folder.name)
async def test_calls_without_a_server_are_accounted_for(peer):
    """IO-4: without a server, a peer accounts for every call, either as failed or as still waiting at the end."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        settings = dict.fromkeys(peer.configurable, 30_000)
        account = await account_of(peer, f"127.0.0.1:{nobody.getsockname()[1]}", settings=settings)
    calls = account.calls
    assert calls.ok == 0
    assert calls.made == sum(calls.failed.values()) + calls.unfinished > 4
    assert calls.unfinished == (0 if peer.name in FAIL_FAST else 2)  # the workers that wait for READY
