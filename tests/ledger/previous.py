"""What version 0.2 sent to PostgreSQL, as far as a deliverer that still runs while others are upgraded needs it."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import psycopg

from grpc_backoff.ledger.schema import migrations

SCHEMAS = {"postgres": 3, "sqlite": 2}
"""The versions of its tables."""
_VERSION = "CREATE TABLE {} (version integer NOT NULL); INSERT INTO {} VALUES ({})"
NOW = {"postgres": "now()", "sqlite": "0"}
INSERT = (
    "INSERT INTO {} (id, target, method, request, metadata, policy, state, attempts, recorded, step, refreshed, "
    "lease_token, next_attempt_at, created, began) VALUES ({}, 'shop:443', '/shop.Orders/Place', '', '[]', 'steps', "
    "'pending', 0, 0, 0, false, 0, {now}, {now}, {now})"
)
_CLAIM = (
    "WITH taken AS (UPDATE grpc_backoff.operations o SET state = 'in_progress', lease_owner = %(owner)s, "
    "lease_began = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => %(lease)s), "
    "lease_token = o.lease_token + 1, claimed_from = o.next_attempt_at, next_attempt_at = NULL "
    "FROM (SELECT seq FROM grpc_backoff.operations WHERE target = %(target)s AND next_attempt_at <= now() "
    "ORDER BY next_attempt_at, seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED) due WHERE o.seq = due.seq RETURNING o.*) "
    "SELECT o.id::text, o.lease_token FROM taken o ORDER BY o.seq"
)
_FAILURE = "SELECT * FROM grpc_backoff.record_failure(%s, %s, %s, %s, %s::jsonb, %s::jsonb, %s)"
_SUCCESS = "SELECT * FROM grpc_backoff.record_success(%s, %s)"
_POLICY = {"strategy": "fixed", "base": 0.01, "jitter": "none", "cap": 1.0, "largest": 1e300, "server_delay_jitter": 0}
_KIND = {
    "retryable": True,
    "conflict": False,
    "renews": False,
    "stopped": False,
    "exactly": False,
    "schedule": "schedule",
    "attempts": "no attempts are left",
}


def create_tables(url, kind):
    """Create the tables of version 0.2."""
    version = SCHEMAS[kind]
    sql = migrations(kind)[:version]
    if kind == "postgres":
        with psycopg.connect(url) as connection:
            connection.execute("CREATE SCHEMA grpc_backoff")
            for statements in (*sql, _VERSION.format(*["grpc_backoff.schema"] * 2, version)):
                connection.execute(statements)
        return
    with contextlib.closing(sqlite3.connect(url)) as connection:
        connection.executescript("\n".join([*sql, _VERSION.format(*["ledger_schema"] * 2, version)]))


class Deliverer:
    """A deliverer of version 0.2, with the policy "max_attempts: unlimited, deadline: 1d, delay: 10ms"."""

    def __init__(self, url):
        self._url = url

    async def __aenter__(self):
        self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        return self

    async def __aexit__(self, *_):
        await self._connection.close()

    async def claim(self, target, limit):
        given = {"owner": "previous", "lease": 30.0, "target": target, "limit": limit}
        return await (await self._connection.execute(_CLAIM, given)).fetchall()

    async def fail(self, id_, token):
        policy, kind = json.dumps(_POLICY), json.dumps(_KIND)
        await self._connection.execute(_FAILURE, (id_, token, "UNAVAILABLE", "down", kind, policy, 0.5))

    async def succeed(self, id_, token):
        await self._connection.execute(_SUCCESS, (id_, token))
