"""The defects that the reference client can have, each with the clause that must detect it, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from interop.clients.reference.habits import Habits

__all__ = ["DEFECTS", "Defect", "habits_with"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that the client does wrong.

    Attributes:
        clauses: the clauses that must detect it. More than one if the same thing is judged in several scenarios.
        says: a description.
        changes: the habits that it changes.
        full: whether only the full run detects it in 19 of 20 runs: it is small, or a matter of chance.
    """

    clauses: tuple[str, ...]
    says: str
    changes: Mapping[str, Any]
    full: bool = False


def _one(clause: str, says: str, *, full: bool = False, **changes: Any) -> Defect:
    return Defect(clauses=tuple(clause.split()), says=says, changes=changes, full=full)


DEFECTS: Final[Mapping[str, Defect]] = {
    "initial-half": _one("first-gap", "INITIAL_BACKOFF is half as long", initial=0.5),
    "initial-0.8": _one("first-gap", "INITIAL_BACKOFF is shorter by 20 %", full=True, initial=0.8),
    "initial-1.2": _one("first-gap", "INITIAL_BACKOFF is longer by 20 %", full=True, initial=1.2),
    "initial-double": _one("first-gap", "INITIAL_BACKOFF is twice as long", initial=2.0),
    "first-gap-none": _one("first-gap", "the second attempt follows at once", skips_first=True),
    "multiplier-1.0": _one("growth", "the gaps do not grow", multiplier=1.0),
    "multiplier-1.3": _one("growth", "MULTIPLIER is 1.3", multiplier=1.3),
    "multiplier-1.45": _one("growth", "MULTIPLIER is 1.45", full=True, multiplier=1.45),
    "multiplier-1.5": _one("growth", "MULTIPLIER is 1.5", full=True, multiplier=1.5),
    "multiplier-1.7": _one("growth", "MULTIPLIER is 1.7", full=True, multiplier=1.7),
    "multiplier-2.0": _one("growth", "MULTIPLIER is 2.0", multiplier=2.0),
    "growth-linear": _one("growth", "gaps grow by INITIAL_BACKOFF", multiplier=1.0, added=1.0, full=True),
    "restart-after-3": _one("growth", "the series starts again after three attempts", restarts_after=3),
    "cap-half": _one("cap", "MAX_BACKOFF is half as long", cap=0.5),
    "cap-0.85": _one("cap", "MAX_BACKOFF is shorter by 15 %", full=True, cap=0.85),
    "cap-1.15": _one("cap", "MAX_BACKOFF is longer by 15 %", full=True, cap=1.15),
    "cap-none": _one("cap", "gaps grow without end", cap=1000.0),
    "jitter-none": _one("jitter", "no jitter", lowest=0.0, highest=0.0),
    "jitter-1": _one("jitter", "jitter of 1 %", lowest=-0.01, highest=0.01),
    "jitter-10": _one("jitter", "jitter of 10 %", lowest=-0.1, highest=0.1, full=True),
    "jitter-30": _one("jitter", "jitter of 30 %", lowest=-0.3, highest=0.3, full=True),
    "jitter-40": _one("jitter", "jitter of 40 %", lowest=-0.4, highest=0.4),
    "jitter-up": _one("jitter", "jitter upwards only", lowest=0.0, highest=0.2, full=True),
    "jitter-down": _one("jitter", "jitter downwards only", lowest=-0.2, highest=0.0, full=True),
    "jitter-whole": _one("jitter", "any gap from none to the whole backoff", lowest=-1.0, highest=0.0),
    "jitter-compounds": _one("jitter-does-not-compound", "jitter enters the next gap", compounds=True, full=True),
    "jitter-same-seed": _one("clients-disperse", "each process draws the same jitter", seeded=True),
    "gives-up-after-8": _one("keeps-trying", "it gives up after eight attempts", gives_up_after=8),
    "from-end": _one("start-to-start", "gaps are counted from the end of the attempt", from_end=True),
    "reset-at-tls": _one("accept-does-not-reset", "a TLS handshake resets the backoff", resets_at="tls settings"),
    "reset-never": _one("settings-reset", "nothing resets the backoff", resets_at=""),
    "timeout-half": _one("limit", "MIN_CONNECT_TIMEOUT is half as long", timeout=0.5),
    "timeout-0.9": _one("limit", "MIN_CONNECT_TIMEOUT is shorter by 10 %", timeout=0.9, full=True),
    "timeout-1.1": _one("limit", "MIN_CONNECT_TIMEOUT is longer by 10 %", timeout=1.1, full=True),
    "timeout-double": _one("limit", "MIN_CONNECT_TIMEOUT is twice as long", timeout=2.0),
    "timeout-none": _one("limit", "an attempt has no limit", timeout=0.0),
    "timeout-alone": _one("limit", "a longer backoff does not extend the limit", lasts_with_backoff=False),
    "tls-no-limit": _one("tls-limit", "a TLS handshake has no limit", timeout_of_tls=0.0),
    "bytes-extend": _one("trickle-limit", "each byte begins the limit anew", extends_on_bytes=True),
    "pause-after-limit": _one("no-pause-after-the-limit", "it pauses after the limit", pauses_after_limit=True),
    "closes-late": _one("limit", "the socket stays open after the limit", closes_late=0.6),
    "two-at-a-time": _one("one-at-a-time", "the next attempt does not wait for the limit", next_before_limit=0.4),
    "first-late": _one("first-attempt", "the first attempt waits for a backoff", first_late=1.0),
    "replaces-late": _one("lost-is-replaced", "a lost connection waits for a backoff", replaces_late=1.0),
    "replaces-two": _one("lost-is-replaced", "only two lost connections are replaced", replaces=2.0),
    "redials-at-once": _one("no-flood", "what was lost young is replaced at once", redials_at_once=True),
    "stable-after-ignored": _one("stable-after", "the option is ignored", knows_stable_after=False),
    "refused-flood": _one("refused-backs-off", "ECONNREFUSED is followed by a dial in 5 ms", floods_on="refused"),
    "refused-doubles": _one("refused-backs-off", "after ECONNREFUSED it waits twice as long", doubles_on="refused"),
    "refused-is-the-end": _one("recovery", "after ECONNREFUSED it dials no more", gives_up_on="refused"),
    "reset-flood": _one("reset-backs-off", "RST is followed by a dial in 5 ms", floods_on="reset"),
    "garbage-flood": _one("garbage-backs-off", "garbage is followed by a dial in 5 ms", floods_on="garbage"),
    "garbage-is-the-end": _one("garbage-backs-off", "after garbage it dials no more", gives_up_on="garbage"),
    "goaway-flood": _one("goaway-backs-off", "GOAWAY is followed by a dial in 5 ms", floods_on="goaway"),
    "goaway-ignored": _one("rolling-restart", "new calls go to a connection that has sent GOAWAY", heeds_goaway=False),
    "refused-streams-fail": _one("refused-is-repeated", "a call that was not taken fails", retries_refused=False),
    "repeats-lost": _one("lost-is-not-repeated", "a call that was taken is made again", repeats_lost=True),
    "fails-fast": _one("waits-for-ready", "wait-for-ready is ignored", waits_for_ready=False),
    "reports-none-lost": _one("accounts-for-calls", "it does not tell of calls that it lost", reports_lost=False),
    "no-settings-ack": _one("acknowledges-settings", "SETTINGS are not acknowledged", acknowledges=False),
    "stray": _one("one-connection", "a second connection is held open", strays=True),
    "announces-half": _one(
        "announced-outage announced-restart announced-move", "every second attempt is not announced", announces=2
    ),
    "dials-after-close": _one(
        "announced-outage announced-restart announced-move", "it dials once it is closed", dials_after_close=True
    ),
}
"""By name, as `--defect` takes it."""


def habits_with(defect: str | None) -> Habits:
    """Return the habits of the client with this defect, or those of the right client.

    Raises:
        ValueError: there is no such defect.
    """
    if defect is None:
        return Habits()
    if defect not in DEFECTS:
        raise ValueError(f"--defect={defect}: expected one of {', '.join(DEFECTS)}")
    return replace(Habits(), **DEFECTS[defect].changes)
