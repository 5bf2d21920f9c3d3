"""How `connect --probe` reports the stages of its attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from grpc_backoff.cli.view import Activity, Cells, View, duration, failure_fields
from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.reply import Answerer, Reply, describe_reply
from grpc_backoff.probe.stages import (
    Certificate,
    PassedOver,
    Reached,
    Resolved,
    Secured,
    Settled,
    StageRecord,
    Tunnelled,
)

_WIDTHS = (12, -7)
"""The widths of the columns for a stage's name and its duration."""


class StageReport:
    """Shows the stages of one attempt as they complete, and how it ended."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._failure: Failure | None = None
        self._await("resolve")

    def remark(self, text: str) -> None:
        """Show a remark before the attempt."""
        self.view.event("remark", text=text)
        self.view.line(text, "dim")

    def passed(self, record: StageRecord) -> None:
        """Show a stage, its duration and its result, and name the next stage."""
        stage, facts, found, upcoming = _read(record)
        if isinstance(record, PassedOver):
            self.view.event("passed_over", took=record.took, **facts)
        else:
            self.view.event("stage", stage=stage.value, took=record.took, **facts)
        self._stage(stage, record.took, "yellow" if isinstance(record, PassedOver) else "green", *found)
        self._await(upcoming)

    def failed(self, failure: Failure, took: float) -> None:
        """Show the stage at which the attempt failed, and the time spent in it, in seconds."""
        self._failure = failure
        self.view.event("failed", took=took, **failure_fields(failure))
        self._stage(failure.stage, took, "red", f"FAILED: {failure.reason}")
        self._await("looking for the cause")

    def answered(self, reply: Reply | None, took: float) -> None:
        """Show who answered a call on the connection, and how; None if neither did. `took` is in seconds."""
        by = Answerer.NEITHER if reply is None else reply.answerer
        seen = Reply({}, {}) if reply is None else reply
        self.view.event(
            "answer",
            took=took,
            answered_by=by.value,
            http=seen.http,
            status=seen.code or None,
            details=seen.details,
            server=seen.by or None,
            health=seen.health or None,
        )
        self._stage(Stage.HEALTH, took, "green" if by is Answerer.SERVER else "yellow", describe_reply(reply))

    def lost(self, loss: Loss, lived: float) -> None:
        """Show that the connection ended while it was being watched; `lived` is in seconds."""
        self.view.event("lost", lived=lived, error=loss.reason, graceful=loss.graceful)
        self._stage(Stage.ESTABLISHED, lived, "yellow", f"LOST: {loss.reason}")

    def explain(self, meaning: str, advice: str) -> None:
        """Show what a failure means, and what to do about it, after an empty line."""
        self.view.line()
        self.view.explain(meaning, advice)

    def ended(self, *, ready: bool, seconds: float) -> None:
        """Show the outcome; nothing follows it."""
        self.view.close()
        failed = f"failed at stage {self._failure.stage.value}" if self._failure else "failed"
        outcome, style = ("READY", "bold green") if ready else (failed, "bold red")
        self.view.line()
        self.view.line(f"{outcome} after {duration(seconds)}", style)
        self.view.event("summary", ready=ready, seconds=seconds, **failure_fields(self._failure))

    def _stage(self, stage: Stage, took: float, style: str, first: str, *more: str) -> None:
        self.view.row(Cells(_WIDTHS, [[(stage.value, style)], [(duration(took), "dim")], [(first, "")]]))
        for text in more:
            self.view.row(Cells(_WIDTHS, [[], [], [(text, "")]]))

    def _await(self, text: str) -> None:
        self.view.now(Activity(text, spins=True))


def _read(record: StageRecord) -> tuple[Stage, dict[str, object], Sequence[str], str]:
    """Return a stage, what it found, as fields of an event and as lines of text, and what is waited for next."""
    connecting = "tcp: waiting for the server to accept the connection"
    first_bytes = "waiting for the server's first bytes"
    facts: dict[str, object]
    match record:
        case Resolved():
            addresses = [str(address) for address in record.addresses]
            return Stage.RESOLVE, {"addresses": addresses}, [", ".join(addresses)], connecting
        case Reached():
            failed = {str(address): reason for address, reason in record.failed.items()}
            texts = [f"tried first: {address}: {reason}" for address, reason in failed.items()]
            facts = {"address": str(record.address), "failed": failed}
            return Stage.TCP, facts, [f"connected to {record.address}", *texts], first_bytes
        case Tunnelled(answer=answer):
            return Stage.TCP, {"proxy": answer}, [f"through the HTTP proxy: {answer}"], first_bytes
        case Secured(security=made):
            facts = {"version": made.version, "cipher": made.cipher, "alpn": made.alpn, "certificate": None}
            texts = [f"{made.version}, ALPN {made.alpn}, {made.cipher}"]
            if made.certificate is not None:
                facts["certificate"] = asdict(made.certificate)
                texts += _certificate(made.certificate)
            return Stage.TLS, facts, texts, "settings: waiting for the SETTINGS frame"
        case Settled():
            texts = [", ".join(f"{name} {value}" for name, value in record.settings.items()) or "all defaults"]
            upcoming = "asking whether the server answers calls"
            return Stage.SETTINGS, {"settings": dict(record.settings)}, texts, upcoming
        case PassedOver():
            facts = {"address": str(record.address), **failure_fields(record.failure)}
            texts = [f"FAILED: {record.failure.reason}; trying the next address"]
            return record.failure.stage, facts, texts, connecting


def _certificate(certificate: Certificate) -> Sequence[str]:
    days = "" if certificate.not_after is None else f" ({(certificate.not_after - datetime.now(UTC)).days} days left)"
    until = f"{certificate.not_after:%Y-%m-%d}" if certificate.not_after else "?"
    return [
        f"certificate: {certificate.subject}",
        f"        for: {', '.join(certificate.names) or 'no name'}",
        f"         by: {certificate.issuer}",
        f"      until: {until}{days}",
    ]
