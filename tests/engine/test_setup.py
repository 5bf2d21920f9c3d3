"""What a pool dials, on both APIs; `tests/aio/test_pool.py` and `tests/both_apis/test_pool.py` make whole pools."""

from __future__ import annotations

import json

from grpc_backoff.config.channel_setup import ChannelSetup
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.policy.pooling import PoolPolicy
from grpc_backoff.policy.presets import CONNECT


def setup(key=None, target="target", options=(), **pool):
    return PoolSetup(ChannelSetup(target, CONNECT, PoolPolicy(**pool), None, None, options, ()), None, key)


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
    made = setup(target="ipv4:127.0.0.1:1,127.0.0.1:2", options=options, round_robin=True)
    assert [made.dialled(endpoint).target for endpoint in made.addresses] == ["ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"]
    assert ("grpc.service_config", "{}") in made.dialled("127.0.0.1:1").options
    assert len(read) == 1
