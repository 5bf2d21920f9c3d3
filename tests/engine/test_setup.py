"""What a pool dials, on both APIs; `tests/aio/test_pool.py` and `tests/both_apis/test_pool.py` make whole pools."""

from __future__ import annotations

import json

from tests.setups import pool_setup


def test_the_key_of_an_endpoint():
    """PO-1: the schedule of an endpoint is that of the channel's key and the endpoint; without a key, it is its own."""
    ours, theirs = pool_setup("target", key="key"), pool_setup("target", key="other")
    assert ours.key_of("") == "key"
    assert pool_setup("target").key_of("a") is None
    assert len({ours.key_of("a"), ours.key_of("b"), theirs.key_of("a")}) == 3


def test_options_are_derived_once(monkeypatch):
    """PO-6: the options for one endpoint are derived once for all of a pool, however many endpoints it has."""
    read, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text, **how: read.append(text) or loads(text, **how))
    options = (("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),)
    made = pool_setup("ipv4:127.0.0.1:1,127.0.0.1:2", options=options, round_robin=True)
    assert [made.dialled(endpoint).target for endpoint in made.addresses] == ["ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"]
    assert ("grpc.service_config", "{}") in made.dialled("127.0.0.1:1").options
    assert len(read) == 1
