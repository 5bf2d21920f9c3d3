"""Fixtures for the inbox's tests: `api` runs a test on both APIs, and `url` on both databases."""

from __future__ import annotations

import contextlib

import pytest

from tests.ledger.inbox import servers


@pytest.fixture(params=list(servers.PLACES))
def api(request):
    """The name of an API."""
    return request.param


@pytest.fixture
def place(api):
    """What opens inboxes for an API."""
    with servers.placed(api) as made:
        yield made


@pytest.fixture
def opening(api, url):
    """A function that runs a server with an inbox until the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **how: stack.enter_context(servers.shop(api, url, **how))


@pytest.fixture
def shop(opening):
    """A server with an inbox that has the default options."""
    return opening()
