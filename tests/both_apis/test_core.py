"""The connectors of both APIs on grpcio's C-core, against real peers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

import grpc
import pytest
import trustme

from grpc_backoff.aio.core_connector import CoreConnector as AsyncioConnector
from grpc_backoff.aio.loops import clock_of
from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections.dial_machine import SHUTDOWN
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.engine.core_dial import CoreDial
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.core_connector import CoreConnector as ThreadedConnector
from grpc_backoff.testing.front import settings_then_close
from tests.both_apis.loops import LoopThread, on_a_thread
from tests.certificates import AUTHORITY, client_credentials
from tests.peers import SETTINGS, peer, says, server_tls
from tests.setups import pool_setup
from tests.sync.service import dialled, front, until

RETRY = {
    "maxAttempts": 5,
    "initialBackoff": "5s",
    "maxBackoff": "5s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
WAITING = json.dumps({"methodConfig": [{"name": [{}], "waitForReady": True, "retryPolicy": RETRY}]})


class Asyncio:
    def __init__(self):
        self._loop = LoopThread()

    def dial(self, target, *, credentials=None, options=(), limit=20.0):
        """Make one attempt; return its connection or its failure."""
        return self._loop.run(self._dial(target, credentials, options, limit), 30)

    async def _dial(self, target, credentials, options, limit):
        loop = asyncio.get_running_loop()
        home = clock_of(loop)
        self.made = AsyncioConnector(pool_setup(target, options, credentials, clock=home), "", home)
        outcome = loop.create_future()
        self.made.connect(limit, outcome.set_result)
        return await outcome

    def do(self, function):
        """Call a function where the connections belong; return its result."""
        return self._loop.do(function)

    def close(self):
        self._loop.run(self.made.close(None))

    def stop(self):
        self._loop.close()


class Threads:
    def __init__(self):
        self._conductor = Conductor()
        self._conductor.join(self)

    def dial(self, target, *, credentials=None, options=(), limit=20.0):
        """Make one attempt; return its connection or its failure."""
        home = self._conductor
        self.made = ThreadedConnector(pool_setup(target, options, credentials, clock=home), "", home)
        told = []
        self.do(lambda: self.made.connect(limit, told.append))
        until(lambda: told)
        return told[0]

    def do(self, function):
        """Call a function where the connections belong; return its result."""
        result = []
        self._conductor.post(lambda: result.append(function()))
        until(lambda: result)
        return result[0]

    def close(self):
        for thread in self.do(self.made.close):
            thread.join(20)

    def stop(self):
        self.do(lambda: self._conductor.leave(self))
        self._conductor.stop()


@pytest.fixture(params=[Asyncio, Threads])
def dialler(request):
    """A connector of each API."""
    made = request.param()
    yield made
    made.stop()


def tls(*, alpn=("h2",), host="127.0.0.1"):
    return peer(says("hold"), tls=server_tls(AUTHORITY.issue_cert(host), alpn=alpn))


def nothing(target="127.0.0.1:1"):
    return contextlib.nullcontext(target)


def test_a_fork_as_a_dial_begins(dialler, monkeypatch):
    """FK-1: a dial is known to what leaves the parent's alone only once it is complete: any thread may fork."""
    known, begin = [], CoreDial.begin

    def begins(dial, *arguments):
        known.append(dial in sys.modules[type(dial).__module__].connections)
        begin(dial, *arguments)

    monkeypatch.setattr(CoreDial, "begin", begins)
    with on_a_thread(peer(says(SETTINGS, "hold"))) as (target, _):
        connection = dialler.dial(target)
        assert known == [False]
        assert connection in sys.modules[type(connection).__module__].connections
        dialler.close()


TRUST, STRANGER = client_credentials(), grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())
NO_HTTP2 = (b"HTTP/1.1 400 Bad Request\r\n\r\n", 0.1)


@pytest.mark.parametrize(
    ("stage", "server", "how"),
    [
        (Stage.TCP, lambda _: nothing(), {}),
        (Stage.TCP, lambda path: nothing(f"unix:{path}/ssl-certificate.sock"), {}),
        (Stage.RESOLVE, lambda _: nothing("no-such-host.invalid:50051"), {}),
        *((Stage.SETTINGS, lambda _, steps=steps: peer(says(*steps)), {}) for steps in [(), NO_HTTP2]),
        *(
            (Stage.SETTINGS, lambda path, steps=steps: peer(says(*steps), path=f"{path}/tls-handshake.sock"), {})
            for steps in [(), NO_HTTP2, (b"x", 0.1)]
        ),
        (Stage.TLS, lambda _: peer(says(SETTINGS, "hold")), {"credentials": TRUST}),
        (Stage.TLS, lambda _: tls(), {"credentials": STRANGER}),
        (Stage.TLS, lambda _: tls(host="other.example"), {"credentials": TRUST}),
        (Stage.TLS, lambda _: tls(alpn=()), {"credentials": TRUST}),
        (Stage.TLS, lambda _: tls(alpn=("http/1.1",)), {"credentials": TRUST}),
    ],
)
def test_stages(dialler, tmp_path, stage, server, how):
    """CH-11: a failed attempt tells the stage, whatever its address says; a threaded one leaves no channel open."""
    with on_a_thread(server(tmp_path)) as (target, _):
        failure = dialler.dial(target, **how)
    assert isinstance(failure, Failure)
    assert failure.stage is stage
    assert dialled() == []


@pytest.mark.parametrize("options", [(), [("grpc.service_config", WAITING)]])
def test_the_reason(dialler, options):
    """CH-4: the failure's reason is the core's, even if a service config makes all calls wait and retry."""
    assert "refused" in dialler.dial("127.0.0.1:1", options=options).reason


def test_plaintext_to_tls(dialler):
    """CH-11: a plaintext client on a TLS port fails, and the failure gives a reason."""
    with on_a_thread(tls()) as (target, _):
        assert dialler.dial(target).reason


def test_one_dial(dialler):
    """CB-1: a peer that hangs up only after the core's own backoff is still dialled just once. Waits 0.8 s."""

    async def hang_up_late(visit):
        await asyncio.sleep(0.4)

    with front(hang_up_late) as late:
        dialler.dial(late.target)
        time.sleep(0.4)
        assert len(late.visits) == 1


@pytest.mark.parametrize("secure", [False, True])
def test_connected(dialler, secure):
    """CB-6: an attempt succeeds once SETTINGS arrive, and its connection stays open until it is closed."""
    context = server_tls(AUTHORITY.issue_cert("127.0.0.1")) if secure else None
    with on_a_thread(peer(says(SETTINGS, "hold"), tls=context)) as (target, _):
        connection = dialler.dial(target, credentials=TRUST if secure else None)
        assert connection.alive()
        assert dialler.do(connection.loss) is None
        dialler.close()
        assert dialler.do(
            lambda: not connection.alive() if isinstance(dialler, Threads) else connection.check(False) == SHUTDOWN
        )
    assert dialled() == []


def test_a_peer_that_hangs_up_behind_settings(dialler):
    """CB-15: if the peer hangs up after SETTINGS, the connection ends, and is neither graceful nor has it served."""
    with front(settings_then_close()) as hasty:
        connection = dialler.dial(hasty.target)
        until(lambda: not connection.alive())
        until(lambda: dialler.do(connection.loss) is not None)
        assert dialler.do(connection.loss) == Loss("the peer closed it, or the network failed")
        dialler.do(connection.retire)
        until(lambda: dialled() == [])
