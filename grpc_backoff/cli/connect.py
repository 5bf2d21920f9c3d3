"""`grpc-backoff connect`: connects to a server and shows every attempt and connection until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from grpc_backoff.base.base_errors import ConfigError, OptionError, shown
from grpc_backoff.cli import require
from grpc_backoff.cli.attempt_log import AttemptLog
from grpc_backoff.cli.channel_report import ChannelReport
from grpc_backoff.cli.interrupt import interruptible
from grpc_backoff.cli.refusal import Refusal, printing_warnings, refused_target, refusing
from grpc_backoff.cli.texts import printable
from grpc_backoff.cli.trust import Trust, read_trust
from grpc_backoff.cli.view import View, open_view
from grpc_backoff.config.channel_setup import Listener
from grpc_backoff.config.policy_string import scalar
from grpc_backoff.config.proxies import is_proxied, proxy_source
from grpc_backoff.config.target import DEFAULT_PORT, names_no_port, refuse_nowhere
from grpc_backoff.decide.connections import events
from grpc_backoff.probe.diagnoses import read_reason

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
            other = "--once" if once else "--attempts"
            raise Refusal(f"--probe makes only one attempt: it cannot be combined with {other}")
        context.exit(0 if _probe(target, trust, options, timeout, as_json=as_json) else 1)
    with interruptible(), contextlib.closing(open_view(as_json=as_json)) as view:
        if names_no_port(target):
            view.line(f"the target specifies no port; dialling {DEFAULT_PORT}", "dim")
        if is_proxied(target, options):
            named = proxy_source(dict(options), os.environ)
            view.line(f"{named} is set: connecting through that HTTP proxy", "dim")
        report = ChannelReport(view)
        opened = partial(_open, target, trust, options)
        watch = Watch(report, attempts=attempts, limit=timeout, once=once)
        with interruptible():
            asyncio.run(watch.follow(opened))
        if not watch.log.connections:
            _explain(watch.log.last_error, view, tls=trust is not None, unix=target.startswith("unix"))
        report.summary(watch.log, watch.ended, watch.seconds, watch.status)
    context.exit(0 if watch.log.connections else 1)


def _explain(failure: events.Failure | None, view: View, *, tls: bool, unix: bool) -> None:
    """Explain a failure as far as its text allows and say how to find out more."""
    more = "Run connect --probe to see how far an attempt gets."
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
    from grpc_backoff.cli.stage_report import StageReport  # noqa: PLC0415 - as above

    connector, limit = read_arguments(target, trust, options, timeout)
    with interruptible(), contextlib.closing(open_view(as_json=as_json)) as view:
        return asyncio.run(probe(connector, limit, StageReport(view)))


def _open(target: str, trust: Trust | None, options: Sequence[tuple[str, object]], listener: Listener) -> Channel:
    import grpc  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    from grpc_backoff import aio  # noqa: PLC0415 - as above

    options = [*options, _EAGER]
    try:
        refuse_nowhere(target)
        with printing_warnings():
            if trust is None:
                return aio.insecure_channel(target, options, listeners=[listener])
            return aio.secure_channel(target, grpc.ssl_channel_credentials(*trust.pems), options, listeners=[listener])
    except (OptionError, ConfigError) as error:
        raise refused_target(error) from error
    except (TypeError, ValueError, OverflowError) as error:  # raised by grpcio
        raise Refusal(f"--option: {error}") from error


@contextlib.contextmanager
def _signals_say(stop: Callable[[str], None]) -> Iterator[None]:
    """Within the block, make Ctrl-C and SIGTERM call `stop` with the word that the summary shows.

    After the block, Ctrl-C is ignored until the end of `interruptible`, while the event loop ends: the program
    `timeout` sends each signal twice, and a KeyboardInterrupt in grpcio's core would be printed as a traceback.
    """
    loop = asyncio.get_running_loop()
    after = {}
    # Not by the loop's own handlers: between their removal and what follows, Ctrl-C raises KeyboardInterrupt.
    for number, word in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        handler = partial(_soon, loop, partial(stop, word))
        with contextlib.suppress(ValueError):  # outside the main thread, where no signal is handled
            before = signal.signal(number, handler)
            after[number] = signal.SIG_IGN if number is signal.SIGINT else before
    try:
        yield
    finally:
        for number, following in after.items():
            signal.signal(number, following)


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None], *_signal: object) -> None:
    loop.call_soon_threadsafe(work)


class Watch:
    """Listens to one channel, shows its events, and decides when to stop.

    Attributes:
        log: what happened.
        ended: why the watch ended.
        seconds: how long it lasted.
        status: the channel's status at the end.
    """

    def __init__(self, report: ChannelReport, *, attempts: int | None, limit: float | None, once: bool) -> None:
        """Stop after this many attempts have ended, after `limit` seconds, or at the first READY; None is no limit."""
        self._report = report
        self._attempts = attempts
        self._limit = limit
        self._once = once
        self.log = AttemptLog(0.0)
        self.ended = ""
        self.seconds = 0.0
        self.status: events.ConnectionStatus | None = None
        self._stopped = asyncio.Event()
        self._error: Exception | None = None

    async def follow(self, opened: Callable[[Listener], Channel]) -> None:
        """Open a channel with a listener, and show what happens until there is a reason to stop."""
        self._channel = opened(self._heard)
        self._loop = asyncio.get_running_loop()
        self.log = AttemptLog(self._loop.time())  # now: to open the channel has imported grpc
        with _signals_say(self._stop):
            try:
                await self._until_stopped()
            finally:
                await self._channel.close()

    def _heard(self, event: events.ConnectionEvent) -> None:
        if self._stopped.is_set():
            return
        try:
            attempt = self.log.note(event)
            if attempt is not None:
                self._report.show(attempt)
        except Exception as error:  # noqa: BLE001 - mostly a closed pipe; a channel would only log it
            self._error = error
            self._stop("failed")
        if self._once and isinstance(event, events.Connected):
            self._stop("READY")
        elif self.log.ended == self._attempts and isinstance(event, events.AttemptFailed | events.Connected):
            self._stop("stopped")
            self.status = self._channel.connection_status()  # a channel that does not dial has no slots
            # Do this at once: the machine may already have requested the next attempt, which would be one too many.
            self._channel.stop_dialling()

    def _stop(self, word: str) -> None:
        """End the watch; `word` is the reason shown in the summary."""
        if not self._stopped.is_set():
            self.ended, self.seconds = word, self._loop.time() - self.log.origin
            self._stopped.set()

    async def _until_stopped(self) -> None:
        channel, period, began = self._channel, self._report.view.period, self.log.origin
        end = None if self._limit is None else self._loop.time() + self._limit
        while not self._stopped.is_set():
            channel.get_state(try_to_connect=True)
            self._report.refresh(channel.connection_status(), origin=began)
            left = period if end is None else min(period, end - self._loop.time())
            if left <= 0:
                self._stop("timed out")
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), left)
        self.status = self.status or channel.connection_status()
        if self._error is not None:
            raise self._error
