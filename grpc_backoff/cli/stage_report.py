"""How `connect --probe` reports the stages of its attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from grpc_backoff.cli.texts import duration, failure_fields
from grpc_backoff.cli.view import Activity, Cells, View
from grpc_backoff.config.target import Address
from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.reply import Answerer, Reply, describe_reply
from grpc_backoff.probe.stages import Certificate, Security, StageListener

_CONNECTING = "tcp: waiting for the server to accept the connection"
_FIRST_BYTES = "waiting for the server's first bytes"

_WIDTHS = (12, -7)  # the widths of the columns for a stage's name and its duration


class StageReport(StageListener):
    """Shows the stages of one attempt as they complete, and how it ended."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._failure: Failure | None = None
        self._await("resolve")

    def remark(self, text: str) -> None:
        """Show a remark before the attempt."""
        self.view.event("remark", text=text)
        self.view.line(text, "dim")

    def resolved(self, took: float, addresses: Sequence[Address]) -> None:
        """Show the addresses."""
        texts = [str(address) for address in addresses]
        self._passed(Stage.RESOLVE, took, {"addresses": texts}, [", ".join(texts)], _CONNECTING)

    def reached(self, took: float, address: Address, failed: Mapping[Address, str]) -> None:
        """Show the address that was reached, and those that failed before."""
        reasons = {str(other): reason for other, reason in failed.items()}
        texts = [f"tried first: {other}: {reason}" for other, reason in reasons.items()]
        facts = {"address": str(address), "failed": reasons}
        self._passed(Stage.TCP, took, facts, [f"connected to {address}", *texts], _FIRST_BYTES)

    def tunnelled(self, took: float, answer: str) -> None:
        """Show the answer of the HTTP proxy."""
        self._passed(Stage.TCP, took, {"proxy": answer}, [f"through the HTTP proxy: {answer}"], _FIRST_BYTES)

    def secured(self, took: float, security: Security) -> None:
        """Show what TLS negotiated, and the server's certificate."""
        texts = [f"{security.version}, ALPN {security.alpn}, {security.cipher}"]
        if security.certificate is not None:
            texts += _certificate(security.certificate)
        self._passed(Stage.TLS, took, asdict(security), texts, "settings: waiting for the SETTINGS frame")

    def settled(self, took: float, settings: Mapping[str, int]) -> None:
        """Show the server's SETTINGS."""
        text = ", ".join(f"{name} {value}" for name, value in settings.items()) or "all defaults"
        upcoming = "asking whether the server answers calls"
        self._passed(Stage.SETTINGS, took, {"settings": dict(settings)}, [text], upcoming)

    def passed_over(self, took: float, address: Address, failure: Failure) -> None:
        """Show the address that failed, and where and why it did."""
        self.view.event("passed_over", took=took, address=str(address), **failure_fields(failure))
        self._stage(failure.stage, took, "yellow", f"FAILED: {failure.reason}; trying the next address")
        self._await(_CONNECTING)

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

    def ended(self, seconds: float) -> None:
        """Show the outcome of the attempt, which took this long; nothing follows it."""
        self.view.close()
        failure = self._failure
        outcome = f"failed at stage {failure.stage.value}" if failure else "READY"
        self.view.line()
        self.view.line(f"{outcome} after {duration(seconds)}", "bold red" if failure else "bold green")
        self.view.event("summary", ready=failure is None, seconds=seconds, **failure_fields(failure))

    def _passed(
        self, stage: Stage, took: float, facts: Mapping[str, object], found: Sequence[str], upcoming: str
    ) -> None:
        """Show a stage, what it found, as fields of an event and as lines of text, and what is waited for next."""
        self.view.event("stage", stage=stage.value, took=took, **facts)
        self._stage(stage, took, "green", *found)
        self._await(upcoming)

    def _stage(self, stage: Stage, took: float, style: str, first: str, *more: str) -> None:
        self.view.row(Cells(_WIDTHS, [[(stage.value, style)], [(duration(took), "dim")], [(first, "")]]))
        for text in more:
            self.view.row(Cells(_WIDTHS, [[], [], [(text, "")]]))

    def _await(self, text: str) -> None:
        self.view.now(Activity(text, spins=True))


def _certificate(certificate: Certificate) -> Sequence[str]:
    days = "" if certificate.not_after is None else f" ({(certificate.not_after - datetime.now(UTC)).days} days left)"
    until = f"{certificate.not_after:%Y-%m-%d}" if certificate.not_after else "?"
    return [
        f"certificate: {certificate.subject}",
        f"        for: {', '.join(certificate.names) or 'no name'}",
        f"         by: {certificate.issuer}",
        f"      until: {until}{days}",
    ]
