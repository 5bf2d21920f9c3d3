"""Fixtures for the inbox's tests: `api` runs a test on both APIs, and `url` on both databases."""

from __future__ import annotations

import contextlib

import pytest

from tests.ledger.inbox import servers


@pytest.fixture(scope="session")
def database(server):
    """One database of PostgreSQL for all tests, because creating one takes a second."""
    return server.database()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The URL of a database without an inbox, of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "inbox.db")
    made = request.getfixturevalue("database")
    servers.query(made, "DROP SCHEMA IF EXISTS grpc_backoff CASCADE")
    servers.query(made, "DROP TABLE IF EXISTS effects")
    return made


@pytest.fixture(params=list(servers.PLACES))
def api(request):
    """The name of an API."""
    return request.param


@pytest.fixture
def place(api):
    """What opens inboxes for an API."""
    made = servers.PLACES[api]()
    yield made
    made.close()


@pytest.fixture
def opening(api, url):
    """A function that runs a server with an inbox until the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **how: stack.enter_context(servers.shop(api, url, **how))


@pytest.fixture
def shop(opening):
    """A server with an inbox that has the default options."""
    return opening()
