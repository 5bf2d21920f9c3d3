"""How the reference client connects: every value is the protocol's. A defect changes one of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Habits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What the client does. The default of each attribute is correct.

    Attributes:
        initial: INITIAL_BACKOFF, as a multiple of its setting.
        multiplier: MULTIPLIER.
        added: how much longer each gap is than the previous one, in units of INITIAL_BACKOFF, in addition to
            MULTIPLIER.
        cap: MAX_BACKOFF, as a multiple of its setting.
        lowest: the lowest jitter, as a fraction of the gap.
        highest: the highest jitter.
        compounds: whether a gap grows from the jittered length of the previous one.
        seeded: whether every client draws the same jitter.
        skips_first: whether the second attempt follows the first at once.
        restarts_after: the series restarts after this many attempts; 0 is never.
        gives_up_after: this many failed attempts are the last; 0 is never.
        from_end: whether gaps are counted from the end of the previous attempt.
        floods_on: the failures after which it dials again within 5 ms: "refused", "reset", "garbage" or "goaway".
        gives_up_on: the failures after which it does not dial again; as above.
        doubles_on: the failures whose gap is twice as long; as above.
        resets_at: what resets the backoff: "settings", "tls", both, or nothing if it is empty.
        timeout: MIN_CONNECT_TIMEOUT, as a multiple of its setting; 0 is no limit.
        timeout_of_tls: the same on a connection with TLS.
        lasts_with_backoff: whether an attempt may last as long as its backoff, if that is the longer limit.
        extends_on_bytes: whether each byte from the server restarts the limit.
        pauses_after_limit: whether the gap is counted from the end of an attempt that its limit ended.
        next_before_limit: the next attempt begins this long before the limit, in units of MIN_CONNECT_TIMEOUT.
        closes_late: the socket is closed this long after the limit, in units of MIN_CONNECT_TIMEOUT.
        first_late: the first attempt waits this long, in units of INITIAL_BACKOFF.
        replaces_late: an attempt after the loss of a connection waits this long, in units of INITIAL_BACKOFF.
        replaces: how many lost connections are replaced.
        redials_at_once: whether a short-lived connection is replaced at once.
        knows_stable_after: whether it implements `stable-after`.
        heeds_goaway: whether calls go elsewhere after GOAWAY, and running ones may finish.
        retries_refused: whether a call that the server did not process is repeated.
        repeats_lost: whether a call is repeated that the server may have processed.
        waits_for_ready: whether wait-for-ready calls wait.
        acknowledges: whether it acknowledges SETTINGS.
        strays: whether it opens a second connection in addition, and leaves it open.
        announces: it reports one in this many of its attempts.
        dials_after_close: whether it dials once after it is closed.
        reports_lost: whether it reports the calls that it lost.
    """

    initial: float = 1.0
    multiplier: float = 1.6
    added: float = 0.0
    cap: float = 1.0
    lowest: float = -0.2
    highest: float = 0.2
    compounds: bool = False
    seeded: bool = False
    skips_first: bool = False
    restarts_after: int = 0
    gives_up_after: int = 0
    from_end: bool = False
    floods_on: str = ""
    gives_up_on: str = ""
    doubles_on: str = ""
    resets_at: str = "settings"
    timeout: float = 1.0
    timeout_of_tls: float = 1.0
    lasts_with_backoff: bool = True
    extends_on_bytes: bool = False
    pauses_after_limit: bool = False
    next_before_limit: float = 0.0
    closes_late: float = 0.0
    first_late: float = 0.0
    replaces_late: float = 0.0
    replaces: float = float("inf")
    redials_at_once: bool = False
    knows_stable_after: bool = True
    heeds_goaway: bool = True
    retries_refused: bool = True
    repeats_lost: bool = False
    waits_for_ready: bool = True
    acknowledges: bool = True
    strays: bool = False
    announces: int = 1
    dials_after_close: bool = False
    reports_lost: bool = True
