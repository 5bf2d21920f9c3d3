"""The keyword arguments that are this library's own."""

from __future__ import annotations

import grpc
import pytest

from grpc_backoff import aio
from grpc_backoff.channel.settings import ChannelSettings


async def test_an_unknown_one():
    """CH-10: a keyword that nobody knows is a TypeError that names it and those that there are, as on any function."""
    with pytest.raises(TypeError, match=r"retries: expected one of policy, config, .*retry_hooks"):
        aio.insecure_channel("127.0.0.1:1", retries="standard")
    with pytest.raises(TypeError, match="retries"):
        aio.secure_channel("127.0.0.1:1", grpc.ssl_channel_credentials(), retries="standard")


async def test_each_may_be_left_out_or_none():
    """CH-1: grpc's own arguments are enough, and each of ours has a default."""
    for name in ChannelSettings.__annotations__:
        given = {name: () if name == "listeners" else None}
        await aio.insecure_channel("127.0.0.1:1", **given).close()


async def test_the_environment_is_asked_for_each_channel(tmp_path, monkeypatch):
    """BP-3: what was read for a target without any setting holds only while no file is named."""
    file = tmp_path / "backoff.toml"
    file.write_text('[connection]\ninitial_backoff = "7s"\n')
    shown = []
    for named in (None, file, None):
        monkeypatch.delenv("GRPC_BACKOFF_CONFIG", raising=False)
        if named is not None:
            monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(named))
        async with aio.insecure_channel("127.0.0.1:1") as channel:
            shown.append(channel.policy.initial_backoff)
    assert shown == [1.0, 7.0, 1.0]
