"""The reference client's connection habits. The defaults follow the protocol; each defect changes some of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What the client does. The default of each attribute is correct.

    Attributes:
        initial: INITIAL_BACKOFF, as a multiple of its setting.
        multiplier: MULTIPLIER.
        added: how much longer each gap is than the previous one, in units of INITIAL_BACKOFF, in addition to
            MULTIPLIER.
        fibonacci: whether the gaps are the Fibonacci numbers 1, 1, 2, 3 ..., in units of INITIAL_BACKOFF.
        cap: MAX_BACKOFF, as a multiple of its setting.
        lowest: the lowest jitter, as a fraction of the gap.
        highest: the highest jitter.
        compounds: whether a gap grows from the jittered length of the previous one.
        late: how much later than it should each attempt starts, in seconds.
        tick: how far apart the times are at which its timer can go off, in seconds; 0 for any time.
        seeded: whether every client draws the same jitter.
        skips_first: whether the second attempt follows the first at once.
        restarts_after: the number of attempts after which the series restarts; 0 for never.
        gives_up_after: the number of failed attempts after which it stops dialling; 0 for never.
        from_end: whether gaps are counted from the end of the previous attempt.
        bursts: how many attempts it makes within 5 ms of each other before each backoff; 0 for no bursts.
        floods_on: the failures after which it dials again within 5 ms: "refused", "reset", "garbage", "certificate",
            "goaway" or, for a GOAWAY without an error, "drained".
        gives_up_on: the failures after which it stops dialling, from the same list.
        doubles_on: the failures after which the gap is twice as long, from the same list.
        resets_times: how many connections reset the backoff.
        resets_at: the events that reset the backoff: "settings", "tls", both, or none if it is empty.
        timeout: MIN_CONNECT_TIMEOUT, as a multiple of its setting; 0 for no limit.
        timeout_of_tls: the same for connections with TLS.
        lasts_with_backoff: whether an attempt may last as long as its backoff, if the backoff is longer than the limit.
        extends_on_bytes: whether each byte from the server restarts the limit.
        pauses_after_limit: whether the gap after an attempt that reached its limit counts from the attempt's end.
        next_before_limit: how long before the limit the next attempt begins, in units of MIN_CONNECT_TIMEOUT.
        closes_late: how long after the limit the socket is closed, in units of MIN_CONNECT_TIMEOUT.
        first_late: how long the first attempt waits, in units of INITIAL_BACKOFF.
        replaces_late: how long the attempt after the loss of a connection waits, in units of INITIAL_BACKOFF.
        replaces: how many lost connections are replaced.
        redials_at_once: whether a short-lived connection is replaced at once.
        replaces_served: whether a connection that has answered a call is replaced at once.
        unavailable_pays: whether the status UNAVAILABLE counts as an answer there.
        knows_stable_after: whether it implements `stable-after`.
        heeds_goaway: whether new calls use another connection after GOAWAY, and running ones may finish.
        ends_running: whether the calls that run at a GOAWAY fail.
        repeats_running: whether the calls that run at a GOAWAY are sent again.
        retries_refused: whether it repeats calls that the server did not process.
        repeats_lost: whether it repeats calls that the server may have processed.
        ends_failed: whether calls that fail because there is no connection end.
        waits_for_ready: whether wait-for-ready calls wait.
        acknowledges: whether it acknowledges SETTINGS.
        strays: whether it opens a second connection and leaves it open.
        reports_lost: whether it reports the calls that it lost.
    """

    initial: float = 1.0
    multiplier: float = 1.6
    added: float = 0.0
    fibonacci: bool = False
    cap: float = 1.0
    lowest: float = -0.2
    highest: float = 0.2
    compounds: bool = False
    late: float = 0.0
    tick: float = 0.0
    seeded: bool = False
    skips_first: bool = False
    restarts_after: int = 0
    gives_up_after: int = 0
    from_end: bool = False
    bursts: int = 0
    floods_on: str = ""
    gives_up_on: str = ""
    doubles_on: str = ""
    resets_times: float = float("inf")
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
    replaces_served: bool = True
    unavailable_pays: bool = False
    knows_stable_after: bool = True
    heeds_goaway: bool = True
    ends_running: bool = False
    repeats_running: bool = False
    retries_refused: bool = True
    repeats_lost: bool = False
    ends_failed: bool = True
    waits_for_ready: bool = True
    acknowledges: bool = True
    strays: bool = False
    reports_lost: bool = True
