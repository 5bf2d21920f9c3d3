"""`grpc-backoff connect --probe`: makes one attempt, shows its stages, and explains a failure."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Sequence

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.cli.refusal import Refusal, refused_target
from grpc_backoff.cli.stage_report import StageReport
from grpc_backoff.cli.trust import Trust
from grpc_backoff.config.places import NAME_OVERRIDE
from grpc_backoff.config.proxies import proxy_of, proxy_source
from grpc_backoff.config.target import DEFAULT_PORT, names_no_port, parse_target
from grpc_backoff.connection.connector import ConnectError
from grpc_backoff.decide.calls.call_texts import LIVENESS_METHOD
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.probe.diagnosis import diagnose, diagnose_loss, diagnose_reply, diagnose_settings
from grpc_backoff.probe.dial import read_proxy
from grpc_backoff.probe.http2 import Http2Connection, Http2Connector

_LOOK = 0.3
"""How long a connection is watched after SETTINGS, in seconds. A peer that serves no call ends it within that time.
"""
_ANSWER = 5.0
"""How long to wait for the answer to a call, in seconds. HAProxy tries to reach a dead upstream for 3 s."""


def read_arguments(
    target: str, trust: Trust | None, options: Sequence[tuple[str, object]], timeout: float | None
) -> tuple[Http2Connector, float]:
    """Return the connector that the command line describes, and the limit of its attempt, in seconds (CB-3).

    Raises:
        Refusal: the target is not valid, the options contradict each other, or a file cannot be used.
    """
    unused = [name for name, _ in options if name != NAME_OVERRIDE]
    if unused:
        raise Refusal(f"--probe makes one attempt without a channel and supports only {NAME_OVERRIDE}, not {unused[0]}")
    if timeout is not None and not math.isfinite(timeout):
        raise Refusal(f"--timeout={timeout}: expected a finite number of seconds above 0")
    try:
        parsed = parse_target(target)
        url = "" if parsed.unix else proxy_of(parsed.host, {}, os.environ)
        connector = Http2Connector(
            parsed,
            tls=None if trust is None else trust.context(),
            shows_certificate=trust is not None and trust.cert is not None,
            server_name=next((str(value) for _, value in options), None),
            proxy=read_proxy(url) if url else None,
        )
    except OptionError as error:
        raise refused_target(error) from error
    return connector, CONNECT.min_connect_timeout if timeout is None else timeout


async def probe(connector: Http2Connector, limit: float, report: StageReport) -> bool:
    """Make one attempt, show its stages, and explain a failure; return whether SETTINGS arrived.

    `limit` is that of the attempt, in seconds.
    """
    began = time.perf_counter()
    connector.listener = report
    if names_no_port(connector.target.text):
        report.remark(f"the target specifies no port; dialling {DEFAULT_PORT}")
    if connector.proxy is not None:
        report.remark(f"{proxy_source({}, os.environ)} is set: connecting through that HTTP proxy, as a channel does")
    failed: ConnectError | None = None
    try:
        try:
            connection = await connector.connect(limit)
        except ConnectError as error:
            failed = error
        took, seconds = connector.lap(), time.perf_counter() - began
        if failed is None:
            await _look(connection, report, connector.authority, min(limit, _ANSWER))
        else:
            report.failed(failed.failure, took)
            report.explain(*await diagnose(failed, connector))
        report.ended(seconds)
    finally:
        await connector.close(None)
    return failed is None


async def _look(connection: Http2Connection, report: StageReport, authority: str, patience: float) -> None:
    """Check whether a connection lasts and is usable, and who answers a call on it: the server, or a proxy.

    `patience` is how long to wait for the answer, in seconds.
    """
    since = time.perf_counter()
    wire = connection.wire
    found = diagnose_settings(wire.settings or {})
    if found is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await connection.call(LIVENESS_METHOD, authority)
        if wire.reply is not None or wire.loss is None:
            report.answered(wire.reply, time.perf_counter() - since)
            found = diagnose_reply(wire.reply)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, _LOOK - (time.perf_counter() - since))):
            await connection.lost()
    if wire.loss is not None:
        report.lost(wire.loss, time.perf_counter() - since)
        report.explain(*diagnose_loss(wire.loss))
    if found is not None:
        report.explain(*found)
