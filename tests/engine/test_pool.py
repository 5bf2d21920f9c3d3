"""What both APIs' pools have in common; `tests/aio/test_pool.py` and `tests/both_apis/test_pool.py` test them whole."""

from __future__ import annotations

import json

from grpc_backoff import Closed, Connected, State
from grpc_backoff.engine.pool import SlotReceiver
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.policy.pooling import PoolPolicy
from grpc_backoff.policy.presets import CONNECT


def setup(policy=CONNECT, **how):
    return PoolSetup("target", policy, PoolPolicy(), clock=None, rng=None, **how)


class Pool:
    def __init__(self):
        self.pending, self.told = [1, 2], []

    def serves(self, number):
        self.told.append(number)

    hear = changed = failed = lambda self, *told: self.told.append(told)


def test_a_receiver_without_a_pool():
    """PO-12: what a manager reports after its slot was closed goes nowhere, so that it keeps nothing alive."""
    pool = Pool()
    receiver = SlotReceiver(pool, 3, "a")
    assert len(receiver) == 2
    for pool_now in (pool, None):
        receiver.pool = pool_now
        receiver.release()
        receiver.fail()
        receiver.changed(State.READY)
        receiver.hear(Closed(target="t", at=0.0, attempt=1, lived=None))
        receiver.hear(Connected(target="t", at=0.0, attempt=1, took=0.0, connections=1))
    assert (len(receiver), len(pool.told)) == (0, 5)


def test_the_key_of_an_endpoint():
    """PO-1: the schedule of an endpoint is that of the channel's key and the endpoint; without a key, it is its own."""
    assert setup(key="key").key_of("") == "key"
    assert setup().key_of("a") is None
    assert len({setup(key="key").key_of("a"), setup(key="key").key_of("b"), setup(key="other").key_of("a")}) == 3


def test_options_are_derived_once(monkeypatch):
    """PO-6: the options for one endpoint are derived once for all of a pool, however many endpoints it has."""
    read, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text, **how: read.append(text) or loads(text, **how))
    options = (("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),)
    made = PoolSetup("ipv4:127.0.0.1:1,127.0.0.1:2", CONNECT, PoolPolicy(round_robin=True), None, None, options)
    assert [made.dialled(endpoint)[0] for endpoint in made.addresses] == ["ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"]
    assert ("grpc.service_config", "{}") in made.dialled("127.0.0.1:1")[1]
    assert len(read) == 1
