"""The chaos kit, shown on client libraries that know nothing of this project, with plain grpcio's channels.

The scripted server answers with the request's own bytes, so these are calls whose empty request is a valid answer, or
whose request's first field is that of the answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from grpc_judge.chaos import assert_backs_off, assert_no_call_lost, assert_no_flood, assert_reconnects_within, terms
from grpc_judge.flaky import AcceptClose, Step, Working

pytest_plugins = ["grpc_judge.pytest_plugin"]

LATE = terms(tolerance=0.5)  # a busy machine may be half a second late


def pubsub(target, monkeypatch):
    """Return a function that asks google-cloud-pubsub for a topic."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", target)
    from google.cloud.pubsub_v1 import PublisherClient

    client = PublisherClient()
    return lambda: client.get_topic(topic="projects/p/topics/t", retry=None)


def qdrant(target, monkeypatch):
    """Return a function that asks qdrant-client for all collections."""
    from qdrant_client import QdrantClient

    host, port = target.split(":")
    client = QdrantClient(host=host, grpc_port=int(port), prefer_grpc=True, pool_size=1, check_compatibility=False)
    return client.get_collections


def until_answered(call):
    """Make calls until one is answered, for up to 20 seconds."""
    ends = time.monotonic() + 20
    while True:
        try:
            return call()
        except Exception:
            if time.monotonic() > ends:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("library", [pubsub, qdrant])
def test_a_server_that_hangs_up(library, flaky_grpc, monkeypatch):
    """IO-3: the server hangs up three times; the client backs off, and its call is answered. Takes five seconds."""
    flaky_grpc.play([Step(AcceptClose(), times=3), Working()])
    until_answered(library(flaky_grpc.target, monkeypatch))
    assert len(flaky_grpc.visits) == 4
    assert_backs_off(flaky_grpc.visits, LATE)
    assert_no_flood(flaky_grpc.visits, LATE)
    assert_no_call_lost(flaky_grpc.calls, made=1)


@pytest.mark.parametrize("library", [pubsub, qdrant])
def test_an_outage(library, flaky_grpc, grpc_front, monkeypatch):
    """IO-3: calls fail while the front refuses and are answered after it. Takes three seconds."""
    grpc_front.forward(flaky_grpc.target)
    call = library(grpc_front.target, monkeypatch)
    call()
    grpc_front.refuse()
    grpc_front.break_all()
    with pytest.raises(Exception, match=r"(?i)unavailable|connect"):
        call()
    grpc_front.forward(flaky_grpc.target)
    until_answered(call)
    assert_reconnects_within(grpc_front.visits, 10, since=grpc_front.visits[0].accepted)
    assert len(grpc_front.visits) == 2
    assert_no_call_lost(flaky_grpc.calls, made=2)


ETCD3 = """
import sys, time, etcd3
host, port = sys.argv[1].split(":")
client = etcd3.client(host, int(port))
while True:
    try:
        client.defragment()
    except etcd3.exceptions.ConnectionFailedError:
        time.sleep(0.05)
    else:
        break
"""


def test_a_program_of_its_own(flaky_grpc):
    """IO-3: a program that uses etcd3 is judged from outside, by what the server saw. Takes five seconds."""
    flaky_grpc.play([Step(AcceptClose(), times=3), Working()])
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}  # its generated code is old
    subprocess.run([sys.executable, "-c", ETCD3, flaky_grpc.target], env=environment, timeout=60, check=True)
    assert_backs_off(flaky_grpc.visits, LATE)
    assert_no_call_lost(flaky_grpc.calls, made=1)
