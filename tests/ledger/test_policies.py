"""Policies of operations: where they come from, and which are warned of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_backoff import PolicyWarning, parse_policy
from grpc_backoff.config.file import read_config
from grpc_backoff.ledger.parameters import policy_text
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.echo import Message
from tests.ledger.test_arguments import PREPARING, preparing_by

FILE = """
[policies.careful]
preset = "standard"
max_delay = "10s"

[methods."echo.v1.Echo"]
retry = 2
delay = 3

[ledger]
policy = "careful"
lease = "1m"
methods = true
"""


@pytest.fixture
def filed(tmp_path):
    """A function that returns what prepares operations by the settings in a file."""

    def read(text):
        file = tmp_path / "backoff.toml"
        file.write_text(text)
        config = read_config(file)
        return preparing_by(config.ledger_settings().policy, config)

    return read


async def test_policies(filed, stub):
    """LG-1, LG-14: a policy comes from the argument, else `[methods]`, else `[ledger]`, else the library's default."""
    mine = replace(RETRY_PRESETS["steps"], max_attempts=7)
    preparing = filed(FILE)
    assert preparing.settings.lease == 60.0
    policies = ["retry: 1, delay: 5s", mine, "aggressive", None]
    texts = [preparing.prepared("t", "/m/m", b"", policy=policy).policy for policy in policies]
    texts.append(preparing.prepared(stub.Unary, Message()).policy)
    read = [preparing._policies.of(text) for text in texts]

    assert texts[:4] == ["retry: 1, delay: 5s", policy_text(mine), "aggressive", "careful"]
    assert parse_policy(texts[1]) == mine
    assert [policy.max_attempts for policy in read] == [2, 7, 5, 5, 3]
    assert (read[3].backoff.cap, read[4].nominal(1)) == (10.0, 3.0)
    assert PREPARING.prepared("t", "/m/m", b"").policy == "durable"


async def test_methods_are_for_calls(filed, stub):
    """LG-14: policies in `[methods]` apply to operations only if `[ledger]` says so."""
    preparing = filed(FILE.replace("methods = true", ""))

    assert preparing.prepared(stub.Unary, Message()).policy == "careful"


def test_an_unlimited_policy():
    """BP-2: a policy with neither a deadline nor a limited number of attempts is warned of, as for calls."""
    with pytest.warns(PolicyWarning, match="max_attempts=unlimited: expected a deadline"):
        PREPARING.prepared("t", "/m/m", b"", policy="steps")
