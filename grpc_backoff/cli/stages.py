"""Displays the stages of one attempt as they complete, and its diagnosis: as lines, as JSON, or on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

from grpc_backoff.cli.view import duration, printable, write_json_line
from grpc_backoff.connection.connector import Loss
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.probe.diagnosis import Diagnosis
from grpc_backoff.probe.stages import Certificate, PassedOver, Reached, Resolved, Secured, Settled, StageRecord

if TYPE_CHECKING:
    from rich.console import Console

_NAME, _TIME = 12, 7
"""The widths of the columns for a stage's name and its time."""


class StagesView(Protocol):
    """A display of one attempt."""

    def remark(self, text: str) -> None:
        """Show a remark before the attempt."""
        ...

    def passed(self, record: StageRecord) -> None:
        """Show the result of a stage."""
        ...

    def failed(self, failure: Failure, took: float) -> None:
        """Show the stage at which the attempt failed, and the time spent in it, in seconds."""
        ...

    def lost(self, loss: Loss, lived: float) -> None:
        """Show that the connection ended while it was being watched; `lived` is in seconds."""
        ...

    def explain(self, diagnosis: Diagnosis) -> None:
        """Show what the failure means and what to do about it."""
        ...

    def ended(self, *, ready: bool, seconds: float) -> None:
        """Show the outcome."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


def open_stages(*, as_json: bool) -> StagesView:
    """Return the display for standard output: JSON on request, with a spinner on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonStages()
    return TerminalStages() if sys.stdout.isatty() else LineStages()


class LineStages:
    """A few lines for each stage."""

    def remark(self, text: str) -> None:
        """Print the remark."""
        self._write(text, "dim")

    def passed(self, record: StageRecord) -> None:
        """Print the stage, its duration and its result."""
        style = "yellow" if isinstance(record, PassedOver) else "green"
        self._stage(_stage_of(record), record.took, _found(record), style)

    def failed(self, failure: Failure, took: float) -> None:
        """Print the stage, its duration and the reason for the failure."""
        self._stage(failure.stage, took, [f"FAILED: {failure.reason}"], "red")

    def lost(self, loss: Loss, lived: float) -> None:
        """Print how the connection ended."""
        self._stage(Stage.ESTABLISHED, lived, [f"LOST: {loss.reason}"], "yellow")

    def explain(self, diagnosis: Diagnosis) -> None:
        """Print the meaning and the advice after an empty line."""
        self._write("")
        self._write(diagnosis.meaning, "bold")
        self._write(f"-> {diagnosis.advice}")

    def ended(self, *, ready: bool, seconds: float) -> None:
        """Print the outcome as the last line."""
        self._write("")
        if ready:
            self._write(f"READY after {duration(seconds)}", "bold green")
        else:
            self._write(f"no SETTINGS after {duration(seconds)}", "bold red")

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def _stage(self, stage: Stage, took: float, texts: Sequence[str], _style: str) -> None:
        first, *more = texts
        self._write(f"{stage.value:<{_NAME}}{duration(took):>{_TIME}} {first}")
        for text in more:
            self._write(f"{'':{_NAME + _TIME}} {text}")

    def _write(self, text: str, _style: str = "") -> None:
        click.echo(printable(text))


class TerminalStages(LineStages):
    """The lines of `LineStages`, coloured and wrapped to the terminal, and a spinner for the current stage."""

    def __init__(self, console: Console | None = None) -> None:
        """Start with name resolution, on `console`; standard output by default."""
        from rich.console import Console  # noqa: PLC0415 - rich takes a while to import

        self._console = console or Console(highlight=False)
        self._status = self._console.status("resolve")
        self._status.start()

    def passed(self, record: StageRecord) -> None:
        """Print the result, and name the next stage."""
        super().passed(record)
        self._status.update(_upcoming(record))

    def failed(self, failure: Failure, took: float) -> None:
        """Print the failure, and show that its cause is being determined."""
        super().failed(failure, took)
        self._status.update("looking for the cause")

    def ended(self, *, ready: bool, seconds: float) -> None:
        """Print the outcome as the last line, without the spinner."""
        self._status.stop()
        super().ended(ready=ready, seconds=seconds)

    def close(self) -> None:
        """Stop the spinner."""
        self._status.stop()

    def _stage(self, stage: Stage, took: float, texts: Sequence[str], style: str) -> None:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
        grid.add_column(width=_NAME - 1)
        grid.add_column(width=_TIME + 1, justify="right")
        grid.add_column(ratio=1, overflow="fold")
        found = "\n".join(map(printable, texts))
        grid.add_row(Text(stage.value, style=style), Text(duration(took), style="dim"), Text(found))
        self._console.print(grid)

    def _write(self, text: str, style: str = "") -> None:
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Text(printable(text), style=style))


def _upcoming(record: StageRecord) -> str:
    match record:
        case Resolved() | PassedOver():
            return "tcp: waiting for the server to accept the connection"
        case Reached():
            return "waiting for the server's first bytes"
        case Secured():
            return "settings: waiting for the SETTINGS frame"
        case Settled():
            return "checking whether the connection lasts"


def _stage_of(record: StageRecord) -> Stage:
    match record:
        case Resolved():
            return Stage.RESOLVE
        case Reached():
            return Stage.TCP
        case Secured():
            return Stage.TLS
        case Settled():
            return Stage.SETTINGS
        case PassedOver():
            return record.failure.stage


def _found(record: StageRecord) -> Sequence[str]:
    match record:
        case Resolved():
            return [", ".join(map(str, record.addresses))]
        case Reached():
            failed = [f"tried first: {address}: {reason}" for address, reason in record.failed.items()]
            return [f"connected to {record.address}", *failed]
        case Secured():
            security = record.security
            shown = _certificate(security.certificate) if security.certificate else []
            return [f"{security.version}, ALPN {security.alpn}, {security.cipher}", *shown]
        case Settled():
            return [", ".join(f"{name} {value}" for name, value in record.settings.items()) or "all defaults"]
        case PassedOver():
            return [f"FAILED: {record.failure.reason}; trying the next address"]


def _certificate(certificate: Certificate) -> Sequence[str]:
    days = "" if certificate.not_after is None else f" ({(certificate.not_after - datetime.now(UTC)).days} days left)"
    until = f"{certificate.not_after:%Y-%m-%d}" if certificate.not_after else "?"
    return [
        f"certificate: {certificate.subject}",
        f"        for: {', '.join(certificate.names) or 'no name'}",
        f"         by: {certificate.issuer}",
        f"      until: {until}{days}",
    ]


class JsonStages:
    """One JSON object per line; the key `event` names its kind, and the last object is the summary."""

    def __init__(self) -> None:
        """Start with no failure to include in the summary."""
        self._failure: Failure | None = None

    def remark(self, text: str) -> None:
        """Print the remark."""
        write_json_line(event="remark", text=text)

    def passed(self, record: StageRecord) -> None:
        """Print the stage and its result."""
        if isinstance(record, PassedOver):
            where = str(record.address)
            write_json_line(event="passed_over", took=round(record.took, 6), address=where, **_failure(record.failure))
        else:
            write_json_line(event="stage", stage=_stage_of(record).value, took=round(record.took, 6), **_facts(record))

    def failed(self, failure: Failure, took: float) -> None:
        """Print the failure."""
        self._failure = failure
        write_json_line(event="failed", took=round(took, 6), **_failure(failure))

    def lost(self, loss: Loss, lived: float) -> None:
        """Print how the connection ended."""
        write_json_line(event="lost", lived=round(lived, 6), error=loss.reason, graceful=loss.graceful)

    def explain(self, diagnosis: Diagnosis) -> None:
        """Print the meaning and the advice."""
        write_json_line(event="diagnosis", meaning=diagnosis.meaning, advice=diagnosis.advice)

    def ended(self, *, ready: bool, seconds: float) -> None:
        """Print the summary."""
        write_json_line(event="summary", ready=ready, seconds=round(seconds, 6), **_failure(self._failure))

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def _failure(failure: Failure | None) -> dict[str, str | None]:
    return {"stage": failure.stage.value if failure else None, "error": failure.reason if failure else None}


def _facts(record: StageRecord) -> dict[str, Any]:
    match record:
        case Resolved():
            return {"addresses": [str(address) for address in record.addresses]}
        case Reached():
            failed = {str(address): reason for address, reason in record.failed.items()}
            return {"address": str(record.address), "failed": failed}
        case Secured():
            security = record.security
            shown = security.certificate
            return {
                "version": security.version,
                "cipher": security.cipher,
                "alpn": security.alpn,
                "certificate": _certificate_facts(shown) if shown else None,
            }
        case Settled():
            return {"settings": dict(record.settings)}
        case _:
            return {}


def _certificate_facts(certificate: Certificate) -> dict[str, Any]:
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "names": list(certificate.names),
        "not_before": certificate.not_before.isoformat() if certificate.not_before else None,
        "not_after": certificate.not_after.isoformat() if certificate.not_after else None,
    }
