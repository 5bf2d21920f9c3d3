"""The demo: real servers, half a minute, checks at the end. `make demo`, or `grpc-backoff demo [--threads]`.

This module starts it; the service is in `orders.py`, the traffic in `traffic.py`, what happens to the servers in
`script.py`, the channels in `channels.py`, and the report at the end in `report.py`. Those need packages, which this
module checks for first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from grpc_backoff.cli import require
from grpc_backoff.cli.attempts import AttemptLog
from grpc_backoff.cli.interrupt import interruptible
from grpc_backoff.cli.view import View, open_view, plural
from grpc_backoff.connection.events import ConnectionEvent, ConnectionStatus

if TYPE_CHECKING:
    from .channels import Channels
    from .script import Run, SceneRecord, Script

__all__ = ["play"]

ShownT = TypeVar("ShownT")

_INTRODUCTION = "Eight workers place orders; INITIAL_BACKOFF is 200 ms, MAX_BACKOFF 1 s."


def play(*, threads: bool = False) -> bool:
    """Run the script on our channel and on grpc's, print the figures, and return whether every check passes.

    Args:
        threads: whether to use channels for threads instead of asyncio.

    Raises:
        MissingExtra: a package that it needs is not installed.
    """
    require("cli", ("rich", "h2"))
    from rich.console import Console  # noqa: PLC0415 - as the next

    from .channels import ASYNCIO, THREADS  # noqa: PLC0415 - needs what was just looked for
    from .report import check, print_report  # noqa: PLC0415

    channels = THREADS if threads else ASYNCIO

    with interruptible(), contextlib.closing(open_view(as_json=False)) as view:
        view.remark(_INTRODUCTION)
        ours, plain = asyncio.run(_play_both(view, channels))
    checks = check(ours)
    print_report(Console(highlight=False), (channels.ours, channels.plain), ours, plain, checks)
    return all(each.holds for each in checks)


async def _play_both(view: View, channels: Channels) -> tuple[Run, Run]:
    return await _play_ours(view, channels), await _play_plain(view, channels)


async def _play_ours(view: View, channels: Channels) -> Run:
    from .script import Script  # noqa: PLC0415 - needs h2

    log = AttemptLog(asyncio.get_running_loop().time())
    output = _Output()

    def heard(event: ConnectionEvent) -> None:
        attempt = log.note(event, script.channel.connection_status().next_attempt_in)
        if attempt is not None:
            output.show(view.show, attempt)

    def status() -> ConnectionStatus | None:
        return script.channel.connection_status() if script.channel else None

    script = Script(
        lambda target: channels.make_ours(target, heard),
        channels.place,
        begins=lambda scene: output.show(view.heading, scene.value),
    )
    return await _play(script, view, status, output)


async def _play_plain(view: View, channels: Channels) -> Run:
    from .script import Script  # noqa: PLC0415 - as above

    def tell(record: SceneRecord) -> None:
        output.show(view.remark, f"{plural(record.connections, 'connection'):>17}  {record.scene.value}")

    output = _Output()
    view.heading(f"now the same with plain {channels.plain}, which reports no attempts")
    script = Script(channels.make_plain, channels.place, ended=tell)
    return await _play(script, view, lambda: None, output)


class _Output:
    """Keeps an exception from a view, usually a closed pipe, raised where it could not be caught: in a listener."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def show(self, show: Callable[[ShownT], object], what: ShownT) -> None:
        if self._error is None:
            try:
                show(what)
            except Exception as error:  # noqa: BLE001 - raised by `check`
                self._error = error

    def check(self) -> None:
        """Raise it, if there is one."""
        if self._error is not None:
            raise self._error


async def _play(script: Script, view: View, status: Callable[[], ConnectionStatus | None], output: _Output) -> Run:
    """Run the script while keeping the view up to date."""
    playing = asyncio.create_task(script.play())
    try:
        while not playing.done():
            view.refresh(status(), _note(script))
            await asyncio.wait({playing}, timeout=view.period)
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
