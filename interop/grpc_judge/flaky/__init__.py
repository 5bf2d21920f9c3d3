"""A server that fails according to a script, one behaviour per connection, for testing any gRPC client (IO-3).

Connect a client to the server, then look at what the server saw::

    async with FlakyServer("accept_close x1; refuse until 1.5; slow_settings(delay=0.5) x1; working") as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            reply = await EchoStub(channel).Unary(Message(text="hello"), wait_for_ready=True)  # any unary method
        for visit in server.timeline().visits:
            print(visit.number, visit.behaviour, visit.accepted, visit.settings_sent, visit.ending)

`Script.parse` documents the syntax of scripts, and `grpc_judge.flaky.behaviours` the behaviours. The same script as a
value is `Script((Step(AcceptClose(), times=1), Step(Refuse(), until=1.5), Step(SlowSettings(0.5), times=1),
Step(Working())))`. To add a behaviour, derive a class from `Behaviour`. With `tls=Tls(certificate, key)` the server
speaks TLS. `server.play(script)` switches to another script, and `await server.wait_for(connections=3)` waits for
connections. `grpc_judge.flaky.control` offers the same over gRPC, to other processes and languages.

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
from grpc_judge.flaky.script import Script, ScriptError, Step
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
    "ScriptError",
    "SettingsThenClose",
    "SettingsThenGoaway",
    "Silent",
    "SlowSettings",
    "Step",
    "Tls",
    "TlsGarbage",
    "Trickle",
    "Working",
]
