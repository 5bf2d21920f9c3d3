"""The demo: half a minute with real servers, and checks at the end. `make demo` runs it.

This module starts the demo. `orders.py` contains the service, `traffic.py` the traffic, `script.py` what happens to the
servers, `channels.py` the channels, and `report.py` the report at the end. Those modules need extra packages, so this
module first checks that they are installed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from grpc_backoff.cli import require
from grpc_backoff.cli.attempt_log import AttemptLog
from grpc_backoff.cli.channel_report import ChannelReport
from grpc_backoff.cli.interrupt import interruptible
from grpc_backoff.cli.texts import plural
from grpc_backoff.cli.view import open_view
from grpc_backoff.decide.connections.events import ConnectionEvent, ConnectionStatus

if TYPE_CHECKING:
    from .channels import Channels
    from .script import Run, SceneRecord, Script

__all__ = ["play"]

ShownT = TypeVar("ShownT")

_INTRODUCTION = "Eight workers place orders; INITIAL_BACKOFF is 200 ms, MAX_BACKOFF 1 s."


def play(*, threads: bool = False) -> bool:
    """Run the script on our channel and on grpc's, print the figures, and return whether all checks pass.

    Args:
        threads: whether to use threaded channels instead of asyncio channels.

    Raises:
        MissingExtra: a package that the demo needs is not installed.
    """
    require("cli", "the demo", ("rich", "h2"))
    from rich.console import Console  # noqa: PLC0415 - needs rich

    from .channels import ASYNCIO, THREADS  # noqa: PLC0415 - checked above
    from .report import check, print_report  # noqa: PLC0415

    channels = THREADS if threads else ASYNCIO

    with interruptible(), contextlib.closing(open_view(as_json=False)) as view:
        view.line(_INTRODUCTION, "dim")
        ours, plain = asyncio.run(_play_both(ChannelReport(view), channels))
    checks = check(ours)
    print_report(Console(highlight=False), (channels.ours, channels.plain), ours, plain, checks)
    return all(each.holds for each in checks)


async def _play_both(report: ChannelReport, channels: Channels) -> tuple[Run, Run]:
    return await _play_ours(report, channels), await _play_plain(report, channels)


async def _play_ours(report: ChannelReport, channels: Channels) -> Run:
    from .script import Script  # noqa: PLC0415 - needs h2

    log = AttemptLog(asyncio.get_running_loop().time())
    output = _Output()

    def heard(event: ConnectionEvent) -> None:
        attempt = log.note(event)
        if attempt is not None:
            output.show(report.show, attempt)

    def status() -> ConnectionStatus | None:
        return script.channel.connection_status() if script.channel else None

    script = Script(
        lambda target: channels.make_ours(target, heard),
        channels.place,
        begins=lambda scene: output.show(partial(_head, report), scene.value),
    )
    return await _play(script, report, status, output)


async def _play_plain(report: ChannelReport, channels: Channels) -> Run:
    from .script import Script  # noqa: PLC0415 - as above

    def tell(record: SceneRecord) -> None:
        text = f"{plural(record.connections, 'connection'):>17}  {record.scene.value}"
        output.show(lambda shown: report.view.line(shown, "dim"), text)

    output = _Output()
    _head(report, f"the same script with plain {channels.plain}, which does not report its attempts")
    script = Script(channels.make_plain, channels.place, ended=tell)
    return await _play(script, report, lambda: None, output)


def _head(report: ChannelReport, text: str) -> None:
    """Start a section; the rows of open connections are printed above it."""
    report.print_standing()
    report.view.line()
    report.view.line(text if report.view.live else f"== {text}", "bold")


class _Output:
    """Shows events in a report. Stores an exception, usually from a closed pipe, until `check` can raise it."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def show(self, show: Callable[[ShownT], object], what: ShownT) -> None:
        if self._error is None:
            try:
                show(what)
            except Exception as error:  # noqa: BLE001 - `check` raises it
                self._error = error

    def check(self) -> None:
        """Raise the exception, if there was one."""
        if self._error is not None:
            raise self._error


async def _play(
    script: Script, report: ChannelReport, status: Callable[[], ConnectionStatus | None], output: _Output
) -> Run:
    """Run the script and keep the report up to date meanwhile."""
    playing = asyncio.create_task(script.play())
    try:
        while not playing.done():
            report.refresh(status(), _note(script))
            await asyncio.wait({playing}, timeout=report.view.period)
            output.check()
    finally:
        playing.cancel()
        await asyncio.wait({playing})
    return playing.result()


def _note(script: Script) -> str:
    traffic = script.traffic
    if traffic is None:
        return ""
    ended = len(traffic.records)
    return f"{traffic.made} calls made, {traffic.answered} answered, {traffic.made - ended} running or waiting"
