"""How policies are named on the command line: a preset, a file, one policy of a file, or a policy string.

Examples: `standard`, `backoff.toml`, `backoff.toml#careful`, `"retry: 5, delay: 1s, backoff: linear"`.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from grpc_backoff.base.base_errors import PolicyWarning
from grpc_backoff.config.file import read_config
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.settings import begin_with, resolve_connect, resolve_retry
from grpc_backoff.config.sources import ResolvedPolicy
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.presets import CONNECT_PRESET
from grpc_backoff.policy.retry import RetryPolicy

_SUFFIX = ".toml"
_OF_FILE = "#"


@dataclass(frozen=True, slots=True)
class Named:
    """A policy for connections or calls, with the name under which it is shown."""

    name: str
    policy: ConnectPolicy | RetryPolicy


def named_policies(text: str) -> list[Named]:
    """Return the policies that a text names; for a whole file, all its policies for connections and calls.

    Raises:
        OptionError, ConfigError: the text names no policy, or has an invalid value.
    """
    path, policy = file_of(text)
    if path:
        config = read_config(path)
        if policy:
            return [_told(text, config.policy(policy))]
        sections = [(name, resolved.policy) for name, resolved in config.sections()]
        return [Named(name, policy) for name, policy in sections if isinstance(policy, ConnectPolicy | RetryPolicy)]
    if ":" in text or "=" in text:
        return [Named(text, parse_policy(text))]
    if text == CONNECT_PRESET:
        return [Named(text, resolve_connect([begin_with(text)], {})[0].policy)]
    return [_told(text, resolve_retry([begin_with(text)], {}))]


def _told(name: str, resolved: ResolvedPolicy[RetryPolicy]) -> Named:
    """Return a policy that was requested by name and warn about its settings that have no effect."""
    for remark in resolved.remarks:
        warnings.warn(remark, PolicyWarning, stacklevel=2)
    return Named(name, resolved.policy)


def file_of(text: str) -> tuple[str, str]:
    """Split a text into the path of a file and the name of one of its policies; either is empty if it is missing."""
    path, _, policy = text.rpartition(_OF_FILE)
    if path and not Path(text).is_file() and _is_file(path):
        return path, policy
    return (text, "") if _is_file(text) else ("", "")


def _is_file(text: str) -> bool:
    return text.endswith(_SUFFIX) or (os.sep in text and ":" not in text) or Path(text).is_file()
