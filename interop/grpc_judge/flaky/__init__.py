"""A server that fails according to a script, one behaviour per connection, for testing any gRPC client (IO-3).

Connect a client to the server, then look at what the server saw::

    script = [Step(AcceptClose(), times=1), Step(Refuse(), until=1.5), Step(SlowSettings(0.5), times=1), Working()]
    async with FlakyServer(script) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            reply = await EchoStub(channel).Unary(Message(text="hello"), wait_for_ready=True)  # any unary method
        for visit in server.timeline().visits:
            print(visit.number, visit.behaviour, visit.accepted, visit.settings_sent, visit.ending)

`grpc_judge.flaky.script` says what scripts are, also as JSON, and `grpc_judge.flaky.behaviours` has the behaviours. To
add one, derive a class from `Behaviour`. With `tls=Tls(certificate, key)` the server speaks TLS.
`server.play(script)` switches to another script, and `await server.wait_for(connections=3)` waits for connections.
`grpc_judge.flaky.control` offers the same over gRPC, to other processes and languages.

The modules: `behaviours` and `script` describe what is to happen. `server` listens (`port`), follows the script
(`player`) and hands each connection to a `visitor`, which combines bytes (`wire`, `tls`), HTTP/2 (`http2`, `service`)
and the notes on the connection (`record`).
"""

from __future__ import annotations

from grpc_judge.flaky.behaviour import Behaviour
from grpc_judge.flaky.behaviours import (
    AcceptClose,
    AcceptReset,
    EnhanceYourCalm,
    Http1Answer,
    MaxStreams,
    PingFlood,
    Refuse,
    ResetAfterData,
    ResetAfterHeaders,
    ResetDuringData,
    RollingRestart,
    SettingsThenClose,
    SettingsThenGoaway,
    Silent,
    SlowSettings,
    TlsGarbage,
    Trickle,
    Working,
)
from grpc_judge.flaky.connection import Connection
from grpc_judge.flaky.script import Script, Step, read_script, write_script
from grpc_judge.flaky.server import FlakyServer
from grpc_judge.flaky.tls import Tls

__all__ = [
    "AcceptClose",
    "AcceptReset",
    "Behaviour",
    "Connection",
    "EnhanceYourCalm",
    "FlakyServer",
    "Http1Answer",
    "MaxStreams",
    "PingFlood",
    "Refuse",
    "ResetAfterData",
    "ResetAfterHeaders",
    "ResetDuringData",
    "RollingRestart",
    "Script",
    "SettingsThenClose",
    "SettingsThenGoaway",
    "Silent",
    "SlowSettings",
    "Step",
    "Tls",
    "TlsGarbage",
    "Trickle",
    "Working",
    "read_script",
    "write_script",
]
