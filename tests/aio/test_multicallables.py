"""A channel's retry settings (BP-2): policies by method, and a policy for one call."""

from __future__ import annotations

import json

import pytest

from grpc_backoff import aio, parse_policy
from tests.aio.retry_service import Say, peer
from tests.aio.trying import failing, finish
from tests.both_apis.interceptors import for_asyncio, go_on
from tests.echo import Message

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
QUICK = "retry: 2, delay: 1ms"


FILE = """
[policies.mine]
retry = 3
delay = "1ms"

[methods."echo.v1.Echo"]
preset = "mine"

[methods."*"]
retry = 7
"""


def config_for(tries):
    policy = {"maxAttempts": tries, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1}
    policy["retryableStatusCodes"] = ["UNAVAILABLE"]
    return [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]}))]


@pytest.mark.parametrize("tries", [2, 5, 8])
async def test_argument_over_service_config_over_file(peer, tmp_path, tries):
    """BP-3, BP-5, RT-10: arguments override the service config, which overrides the file; retries do not multiply."""
    file = tmp_path / "retry.toml"
    file.write_text(FILE)
    peer.service.scripts |= dict.fromkeys(["file", "service config", "argument", "name"], NEVER)
    await failing(peer.client(config=file).call("file"))
    await failing(peer.client(config=file, options=config_for(tries)).call("service config"))
    await failing(peer.client("retry: 2", config=file, options=config_for(tries)).call("argument"))
    await failing(peer.client({"*": "mine"}, config=file, options=config_for(tries)).call("name"))
    counted = {text: len(seen) for text, seen in peer.service.tries.items()}
    assert counted == {"file": 4, "service config": tries, "argument": 3, "name": 4}
    assert [seen.before for seen in peer.service.tries["argument"]] == [None, "1", "2"]


async def test_previous_attempts_behind_a_core_that_retries(peer):
    """RT-10: if some methods have no policy, the core keeps its transparent retries, and attempts carry no number."""
    peer.service.scripts["a"] = [DOWN] * 2
    await finish(peer.client({"echo.v1.Echo/Unary": QUICK}).call())
    assert len(peer.service.tries["a"]) == 3
    assert [seen.before for seen in peer.service.tries["a"]] == [None] * 3


@pytest.mark.parametrize("interceptors", [None, for_asyncio(go_on)], ids=["bare", "intercepted"])
@pytest.mark.parametrize("retry", [None, "retry: 5"])
async def test_retrying(peer, tmp_path, interceptors, retry):
    """BP-2: `retrying` takes a policy string, a policy or a name, and does not change the channel's own policy."""
    file = tmp_path / "retry.toml"
    file.write_text(FILE.partition("[methods")[0])
    client = peer.client(retry, interceptors=interceptors, config=file)
    ways = ["retry: 2, delay: 1ms", parse_policy("retry: 2"), "mine", "retry: 0"]
    for number, way in enumerate(ways):
        text = str(number)
        peer.service.scripts[text] = NEVER
        await failing(aio.retrying(client.stub.Unary, way)(Message(text=text)))
    assert [len(peer.service.tries[text]) for text in "0123"] == [3, 3, 4, 1]
    peer.service.scripts["channel"] = NEVER
    await failing(client.call("channel"))
    assert len(peer.service.tries["channel"]) == (6 if retry else 1)
    peer.service.scripts["again"] = [DOWN]
    twice = aio.retrying(aio.retrying(client.stub.Unary, "retry: 9"), "retry: 1")
    assert (await twice(Message(text="again"), timeout=30)).text == "again"
