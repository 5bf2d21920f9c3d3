"""Which event loop the tests run on: asyncio's, or uvloop with `--loop uvloop`."""

from __future__ import annotations

import asyncio

import pytest


def pytest_addoption(parser):
    parser.addoption("--loop", choices=["asyncio", "uvloop"], default="asyncio", help="the event loop of all tests")


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config, item):
    name = config.getoption("--loop")
    if name == "asyncio":
        return {name: asyncio.new_event_loop}
    import uvloop

    return {name: uvloop.new_event_loop}
