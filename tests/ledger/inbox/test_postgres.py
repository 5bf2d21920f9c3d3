"""What is PostgreSQL's own in an inbox: its errors, and a server that goes away."""

from __future__ import annotations

import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor

import grpc
import psycopg
import psycopg_pool
import pytest

from grpc_backoff.ledger import LedgerUnavailableError
from grpc_backoff.ledger.inbox import postgres
from grpc_backoff.ledger.inbox.decision import Busy, Trouble
from grpc_backoff.ledger.inbox.postgres import trouble_of
from tests.ledger import server as servers
from tests.ledger.inbox.servers import Sql, holding, once
from tests.ledger.inbox.servers import shop as opened

Code = grpc.StatusCode


@pytest.fixture
def url(postgres_url):
    """Only PostgreSQL."""
    return postgres_url


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Busy(), Trouble.BUSY),
        (psycopg.errors.LockNotAvailable(), Trouble.BUSY),
        (psycopg.errors.SerializationFailure(), Trouble.BUSY),
        (psycopg.errors.DeadlockDetected(), Trouble.BUSY),
        (psycopg.errors.AdminShutdown(), Trouble.UNAVAILABLE),
        (psycopg.errors.TooManyConnections(), Trouble.UNAVAILABLE),
        (psycopg.errors.DiskFull(), Trouble.UNAVAILABLE),
        (psycopg.errors.ReadOnlySqlTransaction(), Trouble.READ_ONLY),
        (psycopg.OperationalError("connection lost"), Trouble.UNAVAILABLE),
        (psycopg.InterfaceError("closed"), Trouble.UNAVAILABLE),
        (psycopg_pool.PoolTimeout(), Trouble.UNAVAILABLE),
        (psycopg_pool.PoolClosed(), Trouble.UNAVAILABLE),
        (psycopg.errors.InFailedSqlTransaction(), Trouble.OTHER),
        (psycopg.errors.UniqueViolation(), Trouble.OTHER),
        (psycopg.DataError("client side"), Trouble.OTHER),
    ],
)
def test_trouble(error, expected):
    """IB-6: errors that a repeat can mend are distinguished from those that it cannot."""
    assert trouble_of(error) is expected


def test_the_database_goes_away(api):
    """IB-6: while PostgreSQL is down, calls are UNAVAILABLE; when it is back, a repeat is executed once."""

    def looks(text, context):
        yield Sql("SELECT 1")
        return text

    if servers.binaries() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with servers.running() as server, opened(api, server.database()) as shop:
        answer = shop.call("first")
        with holding(shop, lambda: shop.refused("second", "b"), before=once, after=looks) as during:
            server.stop(signal.SIGQUIT)

        assert during.result(30).code() is Code.UNAVAILABLE
        assert shop.refused("third").code() is Code.UNAVAILABLE

        server.start()
        shop.service.handler = once
        assert shop.call("first") == answer
        assert shop.call("second", "b").startswith("b")
        assert shop.effects() == ["a", "b"]


def test_backends_are_killed_in_commit(shop):
    """IB-6: if the answer to COMMIT is lost, the call is UNAVAILABLE, and its repeat finds the truth.

    The server's backend is terminated at many moments around COMMIT, so it may or may not have committed.
    """

    def dies(text, context):
        yield from once(text, context)
        yield Sql(
            "CREATE FUNCTION pg_temp.die() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); RETURN NULL; END $$"
        )
        yield Sql(
            "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION pg_temp.die()"
        )
        yield from once(text, context)
        return text

    shop.service.handler = dies
    assert shop.refused().code() is Code.UNAVAILABLE
    shop.service.handler = once
    assert shop.call().startswith("a ")
    assert shop.effects() == ["a"]


def test_a_standby_is_left(api, url, opening):
    """IB-6: a connection to a server that has become read-only is not used again."""
    shop = opening()
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    setting = f"ALTER DATABASE {name} SET default_transaction_read_only = {{}}"
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(setting.format("on"))
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        refused = shop.refused("a")
        other.execute("SET default_transaction_read_only = off")
        other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")

    assert (refused.code(), "the database is read-only" in refused.details()) == (Code.UNAVAILABLE, True)
    for _ in range(10):  # the pool may have replaced the connection before the server took writes again
        with contextlib.suppress(grpc.RpcError):
            shop.call("a")
            break
    assert shop.effects() == ["a"]


def test_a_deferred_constraint_fails(shop):
    """IB-6: if PostgreSQL rejects COMMIT, the call is INTERNAL, and nothing is recorded."""

    def rejected(text, context):
        yield Sql("CREATE TEMPORARY TABLE pairs (a int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP")
        yield Sql("INSERT INTO pairs VALUES (1), (1)")
        yield from once(text, context)
        return text

    shop.service.handler = rejected
    assert shop.refused().code() is Code.INTERNAL
    assert (shop.effects(), shop.recorded()) == ([], 0)


def test_the_pool_is_exhausted(opening, monkeypatch):
    """IB-6: while all connections are busy, other calls wait and then are UNAVAILABLE."""
    monkeypatch.setattr(postgres, "_TIMEOUT", 1)
    shop = opening(connections=1)
    with holding(shop) as first:
        error = shop.refused("other")

    assert first.result(20).startswith("a ")
    assert error.code() is Code.UNAVAILABLE


def test_the_handlers_lock_timeout_is_its_own(api, url):
    """IB-2: the limit on waiting for a repeat does not apply to the handler's statements."""
    seen = []

    def looks(text, context):
        seen.extend((yield Sql("SELECT current_setting('lock_timeout')")))
        return text

    with opened(api, f"{url}&options=-c%20lock_timeout%3D7s") as shop:
        shop.service.handler = looks
        shop.call()

    assert seen == [("7s",)]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_stricter_isolation(api, url, isolation):
    """IB-2: with a stricter isolation level, too, concurrent repeats get one response."""
    name = isolation.replace(" ", "%5C%20")

    def slowly(text, context):
        yield 0.2
        return (yield from once(text, context))

    with (
        opened(api, f"{url}&options=-c%20default_transaction_isolation%3D{name}") as shop,
        ThreadPoolExecutor(5) as pool,
    ):
        shop.service.handler = slowly
        assert len(set(pool.map(lambda _: shop.call(), range(5)))) == 1
        assert shop.effects() == ["a"]


def test_a_url_that_is_none(place):
    """LG-11: nothing of an invalid URL is shown, because it may be part of a password."""
    with pytest.raises(LedgerUnavailableError) as caught:
        place.open("postgresql://user:sec%ret@host/name")
    assert "sec" not in str(caught.value)
    with pytest.raises(LedgerUnavailableError, match="nothing was stored"):
        place.open("postgresql:///none?host=/nowhere")
