"""The keyword arguments that this library adds to grpc's channel constructors."""

from __future__ import annotations

import random

import grpc
import pytest

from grpc_backoff import OptionError, PolicyWarning, RetryHooks, aio
from grpc_backoff.config.channel_settings import ChannelSettings, _read, check_kind, policy_values, read_channel

OPTIONS = [("grpc.initial_reconnect_backoff_ms", 500), ("grpc.own", 1)]


async def test_an_unknown_one():
    """CH-10: an unknown keyword argument raises a `TypeError` that names the argument and lists the valid ones."""
    with pytest.raises(TypeError, match=r"unknown argument 'retries': expected one of policy, config, .*retry_hooks"):
        aio.insecure_channel("127.0.0.1:1", retries="standard")
    with pytest.raises(TypeError, match="retries"):
        aio.secure_channel("127.0.0.1:1", grpc.ssl_channel_credentials(), retries="standard")


async def test_each_may_be_left_out_or_none():
    """CH-1: all of this library's arguments are optional, and None selects the default."""
    for name in ChannelSettings.__annotations__:
        given = {name: () if name == "listeners" else None}
        await aio.insecure_channel("127.0.0.1:1", **given).close()


async def test_the_environment_is_asked_for_each_channel(tmp_path, monkeypatch):
    """BP-3: `GRPC_BACKOFF_CONFIG` is read for each new channel, even if settings for its target were cached."""
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


def test_the_same_settings_are_read_once():
    """BP-3: channels with the same target and plain options share their settings, but not their listeners or hooks."""
    heard, hooks = [], RetryHooks()
    first = read_channel("127.0.0.1:2", OPTIONS, {})
    for options in (tuple(OPTIONS), [*OPTIONS]):
        again = read_channel("127.0.0.1:2", options, {"listeners": [heard.append], "retry_hooks": hooks})
        assert again.key is first.key
        assert again.policy is first.policy
        assert again.listeners == (heard.append,)
        assert again.hooks is hooks
    assert first.listeners == ()
    others = (("127.0.0.1:3", OPTIONS), ("127.0.0.1:2", OPTIONS[:1]), ("127.0.0.1:2", OPTIONS[::-1]))
    for target, options in others:
        assert read_channel(target, options, {}).key is not first.key


def test_values_of_different_types_are_kept_apart():
    """BP-3: equal values of different types are different options, for this library and for grpcio."""
    for _ in range(2):
        assert type(read_channel("127.0.0.1:2", [("grpc.own", True)], {}).core_options[0][1]) is bool
        assert type(read_channel("127.0.0.1:2", [("grpc.own", 1)], {}).core_options[0][1]) is int
        keys = [read_channel("127.0.0.1:2", [("grpc.own", value)], {}).key for value in (1, True, 1.0)]
        assert keys[0] == keys[1] != keys[2], "grpcio takes 1.0 for a pointer (SH-1)"
        with pytest.raises(OptionError):
            read_channel("127.0.0.1:2", [("grpc.initial_reconnect_backoff_ms", 1.0)], {})
        assert (
            read_channel("127.0.0.1:2", [("grpc.initial_reconnect_backoff_ms", 1)], {}).policy.initial_backoff == 0.001
        )


def test_an_object_of_the_wrong_kind_is_rejected_each_time():
    """CH-10: listeners, rng, clock and hooks are checked for each channel, even if its other settings are cached."""
    for _ in range(2):
        for name in ("listeners", "rng", "clock", "retry_hooks"):
            with pytest.raises(OptionError, match=name):
                read_channel("127.0.0.1:2", OPTIONS, {name: 5})


def test_options_from_an_iterator_are_read_completely():
    """CH-9: options from an iterator, which can be read only once, are all taken into account."""
    for _ in range(2):
        assert read_channel("127.0.0.1:2", iter(OPTIONS), {}).policy.initial_backoff == 0.5


def test_a_file_is_read_for_each_channel(tmp_path):
    """BP-4: the file that an option names is read again for each channel, so a later change applies to new channels."""
    file = tmp_path / "backoff.toml"
    for seconds in (7, 8):
        file.write_text(f"[connection]\ninitial_backoff = {seconds}\n")
        for key in ("grpc_backoff.config", b"grpc_backoff.config"):
            assert read_channel("127.0.0.1:2", [(key, str(file))], {}).policy.initial_backoff == seconds


def test_a_misspelt_option_is_warned_of_each_time():
    """CH-9: every channel with a misspelt option causes a warning, not only the first one."""
    for _ in range(2):
        with pytest.warns(PolicyWarning, match="did you mean") as caught:
            read_channel("127.0.0.1:2", [("grpc.initial_reconnect_backof_ms", 500)] * 2, {})
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("target", ["127.0.0.1:2", "dns:///a.example:1", ""])
def test_a_channel_without_options(target):
    """BP-3, CH-9: what a channel without options has is what reading no options gives, without reading any."""
    setup, read = read_channel(target, None, {}), _read(target, (), {})
    assert setup.values is None
    assert setup._replace(values=read.values) == read
    assert policy_values(target, setup.values) == policy_values(target, read.values) != {}
    assert read_channel(target, [], {}) is read_channel(target, (), {}) is setup


@pytest.mark.parametrize("value", [3, random.Random, object()])
def test_kinds(value):
    """CH-10: an argument is rejected if it lacks the required method, or is a class instead of an instance."""
    check_kind("rng", random.Random(1), "a source", "random")
    with pytest.raises(OptionError, match="rng="):
        check_kind("rng", value, "a source", "random")
