"""This library's channel against real servers and proxies that are killed, drained, aged, frozen and reloaded.

With GRPC_BACKOFF_REQUIRE_PEERS=1, every server in `interop/grpc_judge/servers` goes through everything that can happen
to it, and one that is missing is a failure; `make interop-short` runs what is not slow, and `make interop-full` all.
Otherwise those that need no compiler take part, most of them in what is not slow. `make test` leaves this module out,
because the servers need the machine for themselves. Each case takes three to fifteen seconds of real time; `--junitxml`
keeps its figures.
"""

from __future__ import annotations

import pytest

from grpc_judge.conformance import Outcome
from grpc_judge.runner.build import peers_required
from grpc_judge.runner.process import limited
from grpc_judge.servers.case import perform
from grpc_judge.servers.demands import judge, recovery
from grpc_judge.servers.happenings import SHORT, Happening
from grpc_judge.servers.server import find_servers

SERVERS = find_servers()
UPSTREAM = next(server for server in SERVERS if server.folder.name == "grpc_python")
LIMIT = 180.0  # seconds: two of the slowest starts and the calls in between


def cases():
    for server in SERVERS:
        for happening in server.happenings:
            quick = happening in SHORT and happening.for_proxies == server.proxy
            if peers_required() or (not server.build and (quick or server is UPSTREAM)):
                marks = [] if quick else [pytest.mark.slow]
                yield pytest.param(server, happening, id=f"{server.folder.name}-{happening.value}", marks=marks)


@pytest.mark.parametrize(("server", "happening"), list(cases()))
async def test_our_channel(server, happening, tmp_path, record_property):
    """CH-2, CH-3, CH-6, CH-7, CH-8, CB-4, CB-5, CB-7: the channel meets every demand, whatever happens to a server."""
    if server.missing and not peers_required():
        pytest.skip(f"{server.missing} is missing")
    async with limited(LIMIT):
        observation = await perform(server, UPSTREAM if server.proxy else None, happening, str(tmp_path))
    for name, value in {
        "versions": dict(observation.versions),
        "calls": len(observation.calls),
        "failed": sum(not call.answered for call in observation.calls),
        "recovered": recovery(observation),
        "connections": observation.connections,
        "attempts": len(observation.starts),
    }.items():
        record_property(name, value)
    verdicts = judge(observation)
    assert [f"{each.rule} {each.clause}: {each}" for each in verdicts if each.outcome is Outcome.FAIL] == []
    assert any(each.outcome is Outcome.PASS for each in verdicts)


def test_each_thing_happens_to_some_server():
    """IO-4: what can happen to servers also happens where nothing is compiled."""
    assert {happening for server in SERVERS if not server.build for happening in server.happenings} == set(Happening)
