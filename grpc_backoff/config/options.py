"""Turns channel options into settings (CH-9), or raises an error that names the invalid option (CH-10).

Milliseconds occur only here, because grpc's options use them; everywhere else times are in seconds.

This library's options are the keys that begin with `grpc_backoff.`, and the few of grpc's that it implements itself. A
key that differs from one of them only in punctuation or case (`grpc-backoff.jitter`) is an error, because grpc would
silently ignore it. So is a key with a misspelt prefix (`grpc_backof.jitter`). Any other key is passed on to grpc, with
a warning if it looks like a misspelling of one of grpc's keys that this library implements.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Unpack

from grpc_backoff.base.base_errors import ConfigError, OptionError, near_miss, shown, unknown
from grpc_backoff.config.channel_settings import ChannelSettings
from grpc_backoff.config.channel_setup import ChannelSetup
from grpc_backoff.config.core_options import (
    ENABLE_RETRIES,
    SERVICE_CONFIG,
    Pairs,
    first_values,
    idle_options,
    key_text,
    milliseconds,
)
from grpc_backoff.config.methods import read_call_policies
from grpc_backoff.config.places import read_balancing
from grpc_backoff.config.resolving import resolve_connect
from grpc_backoff.config.service_config import read_json, read_service_config
from grpc_backoff.config.settings import CONNECTING, POOLED, read_source
from grpc_backoff.config.sources import Source, SourceValue, describe
from grpc_backoff.policy.checks import Unit, duration
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.setting import CONFIG, ENVIRONMENT_VARIABLE, PREFIX

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config

FIXED_BACKOFF_MS = "grpc.testing.fixed_reconnect_backoff_ms"

_BY_OPTION = {setting.option: setting for setting in CONNECTING if setting.option is not None}

OPTION_KEYS = (*_BY_OPTION, CONFIG, FIXED_BACKOFF_MS)
"""The keys of all options that this library interprets."""

_WORDS = {setting.name: option for option, setting in _BY_OPTION.items()} | {
    key.removeprefix(PREFIX): key for key in OPTION_KEYS if key.startswith(PREFIX)
}
_REPLAY_LIMIT = "grpc.per_rpc_retry_buffer_size"
_MEANT_FOR_US = r"(?i)(?!grpc\.)grpc[^a-z]*backoff[^a-z]+"
_CARRIED_OUT_HERE = {key: key for key in _BY_OPTION if not key.startswith(PREFIX)}
_NEAR_PREFIX = 0.9
"""The lowest difflib ratio at which a prefix counts as a misspelling of ours; `grpc_backoffice` is below it."""
_POLICY = f"a ConnectPolicy; a preset is named by the option {PREFIX}preset"
_NEAR_KEY = 0.78
"""The same ratio for grpc's keys that this library implements. None of grpcio's other options scores above 0.74."""


def read_options(
    options: Iterable[tuple[str | bytes, object]], *, target: str = "", **settings: Unpack[ChannelSettings]
) -> ChannelSetup:
    """Read one channel's options, with the arguments that have precedence over them or over the file.

    Options take precedence over the file. The file is the argument `config`, or else the one named by the option
    `grpc_backoff.config`, or else the one named by the environment. An explicit `policy` overrides options and file,
    but they are still checked. grpcio's options are passed on unchanged and in order, between those that are added.

    Raises:
        OptionError: an option of this library is unknown or has an invalid value, or so has an argument, or the hedging
            or the health check of the service config.
        ConfigError: the file cannot be read or has an invalid value.

    Warns:
        PolicyWarning: a setting of a policy for calls has no effect.
    """
    ours, core, remarks = _sort(options)
    file = _file(settings.get("config"), ours)
    sources = [_source(ours), *(file.connecting(target) if file else ())]
    resolved, pooling = resolve_connect(sources, file.policies if file else {})
    policy, parts = resolved.policy, resolved.values
    if (instead := settings.get("policy")) is not None:
        if not isinstance(instead, ConnectPolicy):
            raise OptionError("policy", instead, _POLICY)
        policy, parts = instead, {**describe(instead, "argument"), **{part: parts[part] for part in POOLED}}
    values = first_values(core)
    parsed = read_json(values[SERVICE_CONFIG]) if SERVICE_CONFIG in values else {}
    service_config, core = read_service_config(core, values, parsed)
    round_robin, health = read_balancing(parsed, values)
    pooling = pooling._replace(round_robin=round_robin, health_service=health)
    calls = read_call_policies(settings.get("retry"), settings.get("retry_budget"), file, service_config)
    limit = values.get(_REPLAY_LIMIT)
    if isinstance(limit, int):
        calls = calls._replace(replay_limit=max(0, limit))  # as in the core
    if calls.stand_in():  # at the front: grpcio uses the first of two options with the same key
        core = ((ENABLE_RETRIES, 0), *core)
    core += idle_options(policy)
    if any("min_resolve_interval" in source for source in sources):  # for targets that grpcio resolves
        core += ((_WORDS["min_resolve_interval"], milliseconds(pooling.min_resolve_interval, least=0)),)
    return ChannelSetup(target, policy, pooling, parts, calls, core, remarks)


def _file(config: object, options: dict[str, object]) -> Config | None:
    """Return the file that the argument names, or else the option, or else the environment; None if none does."""
    named, path = ("config", config) if config is not None else (CONFIG, options.get(CONFIG))
    by_environment = path is None and CONFIG not in options
    if by_environment and not (path := os.environ.get(ENVIRONMENT_VARIABLE)):
        return None
    from grpc_backoff.config.file import Config, read_config  # noqa: PLC0415 - most channels have no file

    if isinstance(config, Config):
        return config
    if not path or not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise OptionError(named, path, "the path of a file")
    try:
        return read_config(path)
    except ConfigError as error:
        if not by_environment:  # the program itself names the file
            raise
        problem = f"{error.problem} (the environment variable {ENVIRONMENT_VARIABLE} names this file)"
        raise ConfigError(error.path, problem, error.key) from error.__cause__


def _sort(options: Iterable[tuple[str | bytes, object]]) -> tuple[dict[str, object], Pairs, tuple[str, ...]]:
    """Separate this library's options from grpcio's; return both, and remarks."""
    ours: list[tuple[str, object]] = []
    remarks: dict[str, None] = {}
    core = []
    for index, entry in enumerate(options):
        if not isinstance(entry, tuple | list) or len(entry) != 2 or not isinstance(entry[0], str | bytes):  # noqa: PLR2004
            raise OptionError(f"options[{index}]", entry, "a pair of a key and a value")
        key, value = key_text(entry[0]), entry[1]
        if key in OPTION_KEYS:
            ours.append((key, value))
            continue
        ours_for, grpcs = _meant(key)
        if ours_for is not None:
            raise unknown("option", key, value, ours_for, _WORDS)
        if grpcs is not None:
            remarks[f"the option {key!r} is passed to grpcio, which does not know it: did you mean {grpcs!r}?"] = None
        _check_for_core(key, value)
        core.append(entry)
    return first_values(ours), tuple(core), tuple(remarks)


def _check_for_core(key: str, value: object) -> None:
    """Refuse what grpcio would refuse in each attempt to connect, with the errors that grpcio's own channels raise.

    grpcio takes the `int` of any other object for a pointer.
    """
    key.encode()
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise OverflowError(f"{key}={shown(value)}: expected a whole number of 32 bits")
    elif isinstance(value, str):
        value.encode()
    elif not isinstance(value, bytes) and not hasattr(value, "__int__"):
        raise TypeError(f"{key}={shown(value)}: expected a whole number, a string, bytes or an object with a pointer")


@lru_cache(maxsize=1024)
def _meant(key: str) -> tuple[str | None, str | None]:
    """Return what follows the prefix of a key that is meant for us, or else the key of grpc's that it resembles."""
    if meant := re.match(_MEANT_FOR_US, key):
        return key[meant.end() :], None
    prefix, _, name = key.partition(".")
    if name and near_miss(prefix, {PREFIX.rstrip("."): PREFIX}, _NEAR_PREFIX):
        return name, None
    return None, near_miss(key, _CARRIED_OUT_HERE, _NEAR_KEY)


def _source(options: dict[str, object]) -> Source:
    named = {setting.name: (key, options[key]) for key, setting in _BY_OPTION.items() if key in options}
    source = read_source(CONNECTING, named, "option")
    if FIXED_BACKOFF_MS in options:  # overrides the others and turns off growth and jitter, as in C-core
        value = options[FIXED_BACKOFF_MS]
        gap = duration(FIXED_BACKOFF_MS, value, Unit.MILLISECONDS)
        times = dict.fromkeys(("delay", "max_delay", "min_connect_timeout"), gap)
        parts = {"backoff": "exponential", **times, "multiplier": 1.0, "jitter": NoJitter()}
        fixed = {part: SourceValue(set_to, FIXED_BACKOFF_MS, value, "option") for part, set_to in parts.items()}
        return {**source, **fixed}
    return source
