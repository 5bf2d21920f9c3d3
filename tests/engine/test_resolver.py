"""Resolving names in threads, with a resolver of the system whose answers the test decides."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from queue import SimpleQueue

import pytest

from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.engine.resolver import look_up
from grpc_backoff.engine.single_flight import SingleFlight
from tests.sync.service import until


@pytest.fixture
def asked(monkeypatch):
    """The names that were asked for; each answer comes when `answer` is set."""
    names, genuine = [], socket.getaddrinfo
    names.append(threading.Event())

    def getaddrinfo(host, port, *how, **more):
        names.append((host, threading.current_thread()))
        names[0].wait(20)
        return genuine("127.0.0.1", port, *how, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield names
    names[0].set()


def resolve(resolver, name, tell):
    resolver.ask(name, lambda: look_up(name, 1), tell)


def test_one_thread_for_a_name(asked):
    """PO-7: a name is resolved once for all who ask meanwhile, in a daemon thread; another name has its own."""
    resolver, told = SingleFlight("resolver", Stage.RESOLVE), []
    for _ in range(10):
        resolve(resolver, "name", told.append)
    resolve(resolver, "other", told.append)
    until(lambda: len(asked) == 3)
    assert {name for name, _ in asked[1:]} == {"name", "other"}
    assert all(thread.daemon and thread is not threading.current_thread() for _, thread in asked[1:])
    assert told == []
    asked[0].set()
    until(lambda: len(told) == 11)
    assert set(told) == {("127.0.0.1:1",)}
    resolve(resolver, "name", told.append)
    until(lambda: len(told) == 12)
    assert len(asked) == 4


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_a_resolution_that_raises(monkeypatch, kind):
    """PO-7: whatever getaddrinfo raises, the resolution fails, and the next one of the name asks again."""
    resolver, told, answers = SingleFlight("resolver", Stage.RESOLVE), SimpleQueue(), []

    def getaddrinfo(*_how, **_more):
        if not answers:
            answers.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)))
            raise kind("odd")
        return answers

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolve(resolver, "name", told.put)
    assert told.get(timeout=20) == Failure(Stage.RESOLVE, f"{kind.__name__}: odd")
    resolve(resolver, "name", told.put)
    assert told.get(timeout=20) == ("127.0.0.1:1",)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fork_during_a_resolution(asked):
    """PO-12, FK-1: the child resolves the name itself, although the parent's thread does not exist there."""
    resolver = SingleFlight("resolver", Stage.RESOLVE)
    resolve(resolver, "name", lambda _: None)
    until(lambda: len(asked) == 2)
    resolver.begin_anew()
    told = []
    asked[0].set()
    resolve(resolver, "name", told.append)
    until(lambda: told == [("127.0.0.1:1",)])


def test_an_address_of_one_link(monkeypatch):
    """PO-7: an address that is valid only on one link keeps its zone, without which it cannot be dialled."""
    zoned = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 1, 0, 2))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [zoned])
    assert look_up("name", 1) == ("[fe80::1%2]:1",)


def test_a_name_that_does_not_exist():
    """PO-7: the failure has the stage `resolve` and names the host."""
    failure = look_up("nowhere.invalid", 1)
    assert isinstance(failure, Failure)
    assert failure.stage is Stage.RESOLVE
    assert "nowhere.invalid" in failure.reason


def test_each_address_once():
    """PO-6: an address is dialled once, however often the name has it."""
    assert look_up("127.0.0.1", 1) == ("127.0.0.1:1",)
    assert look_up("::1", 1) == ("[::1]:1",)
