"""Which event loop the tests run on: asyncio's, or uvloop with `--loop uvloop`."""

from __future__ import annotations

import asyncio
import ctypes
from concurrent.futures import ThreadPoolExecutor

import grpc
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


@pytest.fixture(scope="session", autouse=True)
def _core_stays():
    """Keep grpc's core from stopping between tests, and at their end.

    grpcio stops a server and frees a channel with the interpreter locked. Was that the last, the core then waits for
    its threads, and one that frees credentials written in Python waits for the interpreter: both without an end.
    """
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port("127.0.0.1:0")
    server.start()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server._state.server))
