"""`grpc-backoff connect`: connects to a server and shows every attempt and connection until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from grpc_backoff.base.base_errors import ConfigError, MissingExtra, OptionError, shown
from grpc_backoff.cli import require
from grpc_backoff.cli.interrupt import interruptible
from grpc_backoff.cli.refusal import Refusal, refusing
from grpc_backoff.cli.report import ChannelReport
from grpc_backoff.cli.trust import Trust, read_trust
from grpc_backoff.cli.view import View, open_view, printable
from grpc_backoff.cli.watch import Watch
from grpc_backoff.config.channel_settings import Listener
from grpc_backoff.config.policy_string import scalar
from grpc_backoff.config.target import DEFAULT_PORT, names_no_port, refuse_nowhere
from grpc_backoff.decide.connections.events import Failure

if TYPE_CHECKING:
    from grpc_backoff.aio import Channel

# Appended to the options of the command line; if a key occurs twice, its first value applies. A lost connection has to
# be replaced at once, because no RPCs are sent here.
_EAGER = ("grpc_backoff.reconnect", "eager")

Value = bool | float | str
"""The value of a channel option."""


def read_option(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> list[tuple[str, Value]]:
    """Parse `KEY=VALUE` options; values that look like numbers or booleans are converted."""
    pairs = []
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{shown(printable(value))}: expected KEY=VALUE")
        pairs.append((key, scalar(text)))
    return pairs


@click.command()
@click.argument("target")
@click.option("--tls", is_flag=True, help="Use TLS.")
@click.option(
    "--ca", type=click.Path(), metavar="FILE", help="Trust these certificate authorities (PEM). Implies --tls."
)
@click.option("--cert", type=click.Path(), metavar="FILE", help="Present this client certificate (PEM). Implies --tls.")
@click.option("--key", type=click.Path(), metavar="FILE", help="The client certificate's key (PEM). Implies --tls.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=read_option,
    help="A channel option, such as grpc.initial_reconnect_backoff_ms=200 or grpc_backoff.multiplier=2. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON; times are in seconds.")
@click.option("--attempts", type=click.IntRange(min=1), metavar="N", help="Stop after N attempts have ended.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop after this many seconds."
)
@click.option("--once", is_flag=True, help="Stop as soon as the channel is READY.")
@click.option(
    "--probe",
    is_flag=True,
    help="Make one attempt, show its stages (resolve, tcp, tls, settings) and, if it fails, what to do about it. "
    "--timeout sets its limit.",
)
@click.pass_context
def connect(
    context: click.Context,
    target: str,
    tls: bool,
    ca: str | None,
    cert: str | None,
    key: str | None,
    options: list[tuple[str, Value]],
    as_json: bool,
    attempts: int | None,
    timeout: float | None,
    once: bool,
    probe: bool,
) -> None:
    """Connect to the gRPC server at TARGET and show every attempt.

    Keeps trying until the channel is READY, then watches the connection and replaces it when it is lost, until Ctrl-C
    or until --once, --attempts or --timeout ends the command. The exit status is 0 if the channel was ever READY and
    1 if it never was. If it never was, the last error is explained. The exit status is 2 for a usage error.
    """
    if timeout is not None and math.isnan(timeout):
        raise Refusal("--timeout=nan: expected a number of seconds")
    trust = read_trust(ca, cert, key) if tls or ca or cert or key else None
    if probe:
        if once or attempts is not None:
            raise Refusal(
                f"--probe makes only one attempt: it cannot be combined with {'--once' if once else '--attempts'}"
            )
        context.exit(0 if _probe(target, trust, options, timeout, as_json=as_json) else 1)
    with interruptible(), contextlib.closing(open_view(as_json=as_json)) as view:
        if names_no_port(target):
            view.line(f"the target specifies no port; dialling {DEFAULT_PORT}", "dim")
        report = ChannelReport(view)
        opened = partial(_open, target, trust, options)
        watch = Watch(report, attempts=attempts, limit=timeout, once=once)
        asyncio.run(watch.follow(opened))
        if not watch.log.connections:
            _explain(watch.log.last_error, view, tls=trust is not None, unix=target.startswith("unix"))
        report.summary(watch.log, watch.ended, watch.seconds, watch.status)
    context.exit(0 if watch.log.connections else 1)


def _explain(failure: Failure | None, view: View, *, tls: bool, unix: bool) -> None:
    """Explain a failure as far as its text allows and say how to find out more."""
    try:
        require("probe", "connect --probe", ("h2",))
    except MissingExtra:
        return
    more = "Run connect --probe to see how far an attempt gets."
    from grpc_backoff.probe.diagnosis import read_reason  # noqa: PLC0415 - needs the extra that was just checked

    found, meaning = None, "The attempt has not ended yet: the server sends nothing, or packets to it are dropped."
    if failure is not None:
        found = read_reason(failure, tls=tls, unix=unix)
        meaning = found.meaning if found else f"The attempt to connect failed at stage {failure.stage.value}."
    if view.live:
        view.line()
    view.explain(meaning, f"{found.advice} {more}" if found else more)


def _probe(
    target: str, trust: Trust | None, options: Sequence[tuple[str, Value]], timeout: float | None, *, as_json: bool
) -> bool:
    with refusing(status=1):
        require("probe", "connect --probe", ("h2",))
    from grpc_backoff.cli.probe import probe, read_arguments  # noqa: PLC0415 - needs the extra that was just checked
    from grpc_backoff.cli.stages import StageReport  # noqa: PLC0415 - as above

    connector, limit = read_arguments(target, trust, options, timeout)
    with interruptible(), contextlib.closing(open_view(as_json=as_json)) as view:
        return asyncio.run(probe(connector, limit, StageReport(view)))


def _open(target: str, trust: Trust | None, options: Sequence[tuple[str, object]], listener: Listener) -> Channel:
    import grpc  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    from grpc_backoff import aio  # noqa: PLC0415 - as above

    options = [*options, _EAGER]
    try:
        refuse_nowhere(target)
        if trust is None:
            return aio.insecure_channel(target, options, listeners=[listener])
        return aio.secure_channel(target, grpc.ssl_channel_credentials(*trust.pems), options, listeners=[listener])
    except (OptionError, ConfigError) as error:
        raise Refusal(str(error).replace("passed to secure_channel for TLS", "and --tls")) from error
    except (TypeError, ValueError, OverflowError) as error:  # raised by grpcio
        raise Refusal(f"--option: {error}") from error
