"""How the databases write what SQL leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpc_backoff.ledger.stores.statements import NO_LEASE, ParameterStyle

CHANNEL = "grpc_backoff_ledger"
"""The channel of PostgreSQL's notifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The SQL of one database.

    Attributes:
        operations, attempts, pauses: the tables; the last one is of targets.
        versions: the table that contains the version of the tables.
        now: the time at which the statement began.
        clock: the time at which the expression is evaluated, thus after a lock was acquired.
        at: the stored form of a time `{}` in seconds.
        later: the time `{0}` plus `{1}` seconds.
        lock: locks the rows of the table `o` and waits for those that are locked, unless a transaction locks all.
        skip: the same, but skips those that are locked.
        key_lock: locks the order key `{1}` of a target `{0}` until the transaction ends, unless that is locked anyway.
        expired: whether the lease of the row `o` has expired; it may look at the first `:head` rows of `:target` from
            the time `:floor` on only.
        lease: the change of a row whose lease is to end in `:lease` seconds.
        early: waits that begin in the future, because the clock `:now` was set back, and how they start again (LG-12);
            `:soon` is a time that only such a clock has not reached.
        sizes: a query for the numbers of operations that are open and that are not, which may be estimates.
        refuse: the change of a row `o` that the database rejects, because another request has its idempotency key.
        style: how the usual driver writes parameters.
        succeeded: records successes of the leases in the table `r`, by the rules of `recording`, of the rows that can
            be read and are not locked, and returns them; empty if that takes more than one statement.
        notify: wakes the deliverers of `:target` in other processes when the transaction commits; empty if the database
            cannot.
        keeps_ended: whether an index keeps its entries for operations that have ended while a transaction is open.
    """

    operations: str
    attempts: str
    pauses: str
    versions: str
    now: str
    clock: str
    at: str
    later: str
    lock: str = ""
    skip: str = ""
    key_lock: str = ""
    expired: str
    lease: str
    early: Mapping[str, str] = field(default_factory=dict)
    sizes: str
    refuse: str
    style: ParameterStyle
    succeeded: str = ""
    notify: str = ""
    keeps_ended: bool = False


SQLITE = Dialect(
    operations="ledger_operations",
    attempts="ledger_attempts",
    pauses="ledger_paused",
    versions="ledger_schema",
    now=":now",
    clock=":now",
    at="{}",
    later="{0} + {1}",
    expired="o.lease_until <= :now",
    lease="lease_until = :now + :lease, lease_seconds = :lease",
    early={
        "next_attempt_at IS NOT NULL AND last_attempted_at > :soon": (
            "last_attempted_at = :now, next_attempt_at = :now + coalesce(backoff_request_seconds, 0)"
        ),
        "state = 'pending' AND began > :soon": (
            "created = min(created, :now), began = :now, "
            "next_attempt_at = CASE WHEN next_attempt_at <= began THEN :now ELSE next_attempt_at END"
        ),
        "lease_until IS NOT NULL AND lease_until - lease_seconds > :soon": "lease_until = :now + lease_seconds",
    },
    sizes=(
        "SELECT true, count(*) FROM ledger_operations o WHERE {open} "
        "UNION ALL SELECT false, count(*) FROM ledger_operations o WHERE NOT {open}"
    ),
    refuse="request = NULL",
    style="qmark",
)
POSTGRES = Dialect(
    operations="grpc_backoff.operations",
    attempts="grpc_backoff.attempts",
    pauses="grpc_backoff.paused",
    versions="grpc_backoff.schema",
    now="now()",
    clock="clock_timestamp()",
    at="to_timestamp({})",
    later="{0} + make_interval(secs => {1})",
    lock=" FOR UPDATE OF o",
    skip=" FOR UPDATE OF o SKIP LOCKED",
    key_lock="pg_advisory_xact_lock(hashtextextended({} || ' ' || {}, 0))",
    # No index contains the ends of leases, but operations are claimed in the order of this one.
    expired=(
        "o.seq IN (SELECT h.seq FROM grpc_backoff.operations h WHERE h.open AND h.target = :target "
        "AND h.due >= to_timestamp(:floor) AND h.due <= now() "
        "ORDER BY h.due, h.seq LIMIT :head) AND o.lease_until <= now()"
    ),
    lease="lease_until = clock_timestamp() + make_interval(secs => :lease)",
    sizes=(
        "SELECT relname = 'operations_due', reltuples FROM pg_class c "
        "WHERE c.oid IN ('grpc_backoff.operations_due'::regclass, 'grpc_backoff.operations_finished'::regclass)"
    ),
    refuse="attempts = ('operation ' || o.id || ' already has this idempotency key, with another request')::integer",
    style="format",
    succeeded=(
        ", held AS (SELECT o.seq, o.id, r.token, o.recorded + 1 AS number, o.lease_began, clock_timestamp() AS ended "
        "FROM grpc_backoff.operations o JOIN r ON o.id = r.id AND o.lease_token = r.token "
        "WHERE o.state = 'in_progress' AND isfinite(o.began) AND isfinite(o.lease_began) AND isfinite(o.lease_until) "
        "AND coalesce(abs(o.previous), 0) < 'Infinity' FOR UPDATE OF o SKIP LOCKED), "
        "added AS (INSERT INTO grpc_backoff.attempts (operation_id, number, token, started, ended, code) "
        "SELECT id, number, token, lease_began, ended, 'OK' FROM held) "
        "UPDATE grpc_backoff.operations AS o "
        "SET state = 'succeeded', attempts = o.attempts + 1, recorded = held.number, "
        "backoff_request_seconds = NULL, last_attempted_at = held.ended, next_attempt_at = NULL, code = 'OK', "
        "details = NULL, reason = NULL, finished = held.ended, "
        "began = CASE o.attempts WHEN 0 THEN coalesce(o.lease_began, held.ended) ELSE o.began END, "
        f"{NO_LEASE} FROM held WHERE o.seq = held.seq RETURNING o.id, held.token, o.attempts, o.order_key"
    ),
    notify=f"SELECT pg_notify('{CHANNEL}', :target)",
    keeps_ended=True,
)
