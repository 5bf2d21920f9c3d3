"""The defects that the reference client can have. Each must be detected by its own clauses and by no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from grpc_judge.clients.reference.habits import Habits


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A way in which the client can be wrong.

    Attributes:
        clauses: the clauses that must detect it. There are several if several scenarios show it.
        says: a description.
        changes: the habits that it changes.
        full: whether only the full run reliably (19 of 20 times) detects it, because it is small or depends on chance.
    """

    clauses: tuple[str, ...]
    says: str
    changes: Mapping[str, Any]
    full: bool = False


def _one(clause: str, says: str, *, full: bool = False, **changes: Any) -> Defect:
    return Defect(clauses=tuple(clause.split()), says=says, changes=changes, full=full)


DEFECTS: Final[Mapping[str, Defect]] = {
    "initial-half": _one("first-gap", "INITIAL_BACKOFF is halved", initial=0.5),
    "initial-0.8": _one("first-gap", "INITIAL_BACKOFF is 20 % too short", full=True, initial=0.8),
    "initial-1.2": _one("first-gap", "INITIAL_BACKOFF is 20 % too long", full=True, initial=1.2),
    "initial-double": _one("first-gap", "INITIAL_BACKOFF is doubled", initial=2.0),
    "first-gap-none": _one("first-gap", "the second attempt follows the first at once", skips_first=True),
    "multiplier-1.0": _one("growth", "the gaps do not grow", multiplier=1.0),
    "multiplier-1.3": _one("growth", "MULTIPLIER is 1.3 instead of 1.6", multiplier=1.3),
    "multiplier-1.45": _one("growth", "MULTIPLIER is 1.45 instead of 1.6", full=True, multiplier=1.45),
    "multiplier-1.5": _one("growth", "MULTIPLIER is 1.5 instead of 1.6", full=True, multiplier=1.5),
    "multiplier-1.7": _one("growth", "MULTIPLIER is 1.7 instead of 1.6", full=True, multiplier=1.7),
    "multiplier-2.0": _one("growth", "MULTIPLIER is 2.0 instead of 1.6", multiplier=2.0),
    "growth-linear": _one(
        "growth", "gaps grow linearly, by INITIAL_BACKOFF each time", multiplier=1.0, added=1.0, full=True
    ),
    "growth-fibonacci": _one("growth", "gaps grow like the Fibonacci numbers 1, 1, 2, 3", fibonacci=True, full=True),
    "late-200-ms": _one("first-gap", "each attempt starts 200 ms too late", late=0.2),
    "bursts-of-2": _one("growth", "each backoff is followed by two attempts at once", bursts=2),
    "bursts-of-3": _one("growth", "each backoff is followed by three attempts at once", bursts=3),
    "bursts-of-20": _one("first-gap growth", "each backoff is followed by twenty attempts at once", bursts=20),
    "restart-after-8": _one("growth", "the backoff starts over after every eighth attempt", restarts_after=8),
    "restart-after-10": _one("growth", "the backoff starts over after every tenth attempt", restarts_after=10),
    "restart-after-3": _one("growth", "the backoff starts over after every third attempt", restarts_after=3),
    "cap-half": _one("cap", "MAX_BACKOFF is halved", cap=0.5),
    "cap-0.85": _one("cap", "MAX_BACKOFF is 15 % too short", full=True, cap=0.85),
    "cap-1.15": _one("cap", "MAX_BACKOFF is 15 % too long", full=True, cap=1.15),
    "cap-none": _one("cap", "gaps keep growing beyond MAX_BACKOFF", cap=1000.0),
    "jitter-none": _one("jitter", "gaps have no jitter", lowest=0.0, highest=0.0),
    "jitter-1": _one("jitter", "jitter is 1 % instead of 20 %", lowest=-0.01, highest=0.01),
    "jitter-10": _one("jitter", "jitter is 10 % instead of 20 %", lowest=-0.1, highest=0.1, full=True),
    "jitter-30": _one("jitter", "jitter is 30 % instead of 20 %", lowest=-0.3, highest=0.3, full=True),
    "jitter-40": _one("jitter", "jitter is 40 % instead of 20 %", lowest=-0.4, highest=0.4),
    "jitter-up": _one("jitter", "jitter only lengthens gaps", lowest=0.0, highest=0.2, full=True),
    "jitter-down": _one("jitter", "jitter only shortens gaps", lowest=-0.2, highest=0.0, full=True),
    "jitter-whole": _one("jitter", "gaps are drawn at random between zero and the backoff", lowest=-1.0, highest=0.0),
    "jitter-compounds": _one(
        "jitter-does-not-compound", "the jitter of one gap carries over into the next", compounds=True, full=True
    ),
    "jitter-same-seed": _one("clients-disperse", "all processes draw the same jitter", seeded=True),
    "gives-up-after-8": _one("keeps-trying", "the client gives up after eight failed attempts", gives_up_after=8),
    "from-end": _one("start-to-start", "gaps count from the end of an attempt instead of its start", from_end=True),
    "reset-at-tls": _one(
        "accept-does-not-reset", "a completed TLS handshake resets the backoff", resets_at="tls settings"
    ),
    "reset-never": _one("settings-reset", "nothing resets the backoff", resets_at=""),
    "reset-once": _one("settings-reset", "only the first connection resets the backoff", resets_times=1.0),
    "replaces-one": _one(
        "lost-is-replaced refused-is-repeated", "only the first lost connection is replaced", replaces=1.0
    ),
    "timeout-half": _one("limit", "MIN_CONNECT_TIMEOUT is halved", timeout=0.5),
    "timeout-0.9": _one("limit", "MIN_CONNECT_TIMEOUT is 10 % too short", timeout=0.9, full=True),
    "timeout-1.1": _one("limit", "MIN_CONNECT_TIMEOUT is 10 % too long", timeout=1.1, full=True),
    "timeout-double": _one("limit", "MIN_CONNECT_TIMEOUT is doubled", timeout=2.0),
    "timeout-none": _one("limit", "attempts have no time limit", timeout=0.0),
    "timeout-alone": _one(
        "limit", "attempts end after MIN_CONNECT_TIMEOUT even if the backoff is longer", lasts_with_backoff=False
    ),
    "tls-no-limit": _one("tls-limit", "attempts that use TLS have no time limit", timeout_of_tls=0.0),
    "bytes-extend": _one("trickle-limit", "each byte from the server restarts the limit", extends_on_bytes=True),
    "pause-after-limit": _one(
        "no-pause-after-the-limit",
        "the client waits for a backoff after an attempt reaches its limit",
        pauses_after_limit=True,
    ),
    "closes-late": _one(
        "limit tls-limit", "an attempt's socket stays open for a while after the limit", closes_late=0.6
    ),
    "two-at-a-time": _one(
        "one-at-a-time", "an attempt starts before the previous one reaches its limit", next_before_limit=0.2
    ),
    "first-late": _one("first-attempt", "the first attempt starts only after INITIAL_BACKOFF", first_late=1.0),
    "replaces-late": _one(
        "lost-is-replaced", "a lost connection is replaced only after INITIAL_BACKOFF", replaces_late=1.0
    ),
    "replaces-two": _one("lost-is-replaced", "only the first two lost connections are replaced", replaces=2.0),
    "redials-at-once": _one("no-flood", "a short-lived connection is replaced at once", redials_at_once=True),
    "served-is-held-back": _one(
        "served-is-replaced", "a connection that has answered calls is not replaced at once", replaces_served=False
    ),
    "unavailable-pays": _one(
        "unserved-is-held-back", "the status UNAVAILABLE counts as an answer, too", unavailable_pays=True
    ),
    "stable-after-ignored": _one("stable-after", "the option `stable-after` is ignored", knows_stable_after=False),
    "refused-flood": _one("refused-backs-off", "the client redials 5 ms after ECONNREFUSED", floods_on="refused"),
    "refused-doubles": _one("refused-backs-off", "the gap after ECONNREFUSED is twice as long", doubles_on="refused"),
    "refused-is-the-end": _one("recovery", "the client stops dialling after ECONNREFUSED", gives_up_on="refused"),
    "reset-flood": _one("reset-backs-off", "the client redials 5 ms after RST", floods_on="reset"),
    "garbage-flood": _one(
        "garbage-backs-off", "the client redials 5 ms after an answer in another protocol", floods_on="garbage"
    ),
    "garbage-is-the-end": _one(
        "garbage-backs-off", "the client stops dialling after an answer in another protocol", gives_up_on="garbage"
    ),
    "certificate-flood": _one(
        "tls-failure-backs-off", "the client redials 5 ms after a certificate that it rejects", floods_on="certificate"
    ),
    "drained-flood": _one(
        "drained-backs-off unserved-is-held-back",
        "the client redials 5 ms after a GOAWAY without an error",
        floods_on="drained",
    ),
    "goaway-flood": _one("goaway-backs-off", "the client redials 5 ms after GOAWAY", floods_on="goaway"),
    "goaway-ignored": _one(
        "rolling-restart", "new calls are still sent on a connection that received GOAWAY", heeds_goaway=False
    ),
    "goaway-ends-running": _one("rolling-restart", "the calls that run at a GOAWAY fail", ends_running=True),
    "goaway-repeats-running": _one(
        "rolling-restart", "the calls that run at a GOAWAY are sent again", repeats_running=True
    ),
    "refused-streams-fail": _one(
        "refused-is-repeated", "a call that the server did not process is not sent again", retries_refused=False
    ),
    "repeats-lost": _one(
        "lost-is-not-repeated", "a call that the server may have processed is sent again", repeats_lost=True
    ),
    "fails-fast": _one("waits-for-ready", "wait-for-ready is ignored", waits_for_ready=False),
    "failed-never-end": _one(
        "accounts-for-calls", "calls that fail because there is no connection never end", ends_failed=False
    ),
    "reports-none-lost": _one(
        "accounts-for-calls", "the client does not report the calls that it lost", reports_lost=False
    ),
    "no-settings-ack": _one("acknowledges-settings", "the server's SETTINGS are not acknowledged", acknowledges=False),
    "stray": _one("one-connection", "the client opens a second connection and keeps it open", strays=True),
}
"""Every defect, by its name for `--defect`."""


def habits_with(defect: str | None) -> Habits:
    """Return the habits of a client with this defect, or of a correct client for None.

    Raises:
        ValueError: the defect does not exist.
    """
    if defect is None:
        return Habits()
    if defect not in DEFECTS:
        raise ValueError(f"--defect={defect}: expected one of {', '.join(DEFECTS)}")
    return replace(Habits(), **DEFECTS[defect].changes)
