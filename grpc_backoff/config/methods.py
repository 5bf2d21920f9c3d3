"""Determines the policy of each method of a channel, from the argument, the service config or the file.

The precedence is that of all settings (BP-3): the argument `retry`, then the channel option `grpc.service_config`, then
the file. Within a source, the most specific entry applies: the one for the method, for its service, or for all methods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.call_policies import ALL, CallPolicies, ServiceConfig
from grpc_backoff.config.patterns import check_methods
from grpc_backoff.config.policy_string import read_string, read_text
from grpc_backoff.config.remarks import missing_jitter, warn_of
from grpc_backoff.config.resolving import resolve_hedging, resolve_retry
from grpc_backoff.config.sources import Source, SourceValue, begin_with
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.hedging import CallPolicy, HedgingPolicy, Repeats
from grpc_backoff.policy.retry import RetryPolicy

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config

_HEDGES = r"(?:^|,)\s*hedge\s*:"
ENDLESS: Source = {part: SourceValue(None, "", None, "subscription") for part in ("max_attempts", "deadline")}
"""What a subscription's policy says instead of its preset, whose limits are meant for calls (SB-4)."""


def read_call_policies(
    retry: Repeats | Mapping[str, Repeats] | None,
    budget: RetryBudget | None,
    config: Config | None,
    service_config: ServiceConfig,
) -> CallPolicies:
    """Return the policies that a channel's arguments, its file and its service config describe.

    Raises:
        OptionError: a policy is unknown or has an invalid value, or a key does not name a method.

    Warns:
        PolicyWarning: a setting of a policy has no effect.
    """
    if budget is not None and not isinstance(budget, RetryBudget):
        raise OptionError("retry_budget", budget, "a RetryBudget")
    by_method = retry if isinstance(retry, Mapping) else {} if retry is None else {ALL: retry}
    check_methods("retry", by_method)
    filed = config.retry_budget if config else None
    return CallPolicies(
        argument={
            entry: read_policy("retry" if policy is retry else f'retry."{entry}"', policy, config)
            for entry, policy in by_method.items()
        },
        service_config=service_config,
        filed={method: resolved.policy for method, resolved in config.methods.items()} if config else {},
        config=config,
        budget=budget or service_config.budget or (filed.policy if filed else None),
    )


def read_retry(key: str, retry: object, config: Config | None, instead: Source = MappingProxyType({})) -> RetryPolicy:
    """Return a retry policy that is given as an object, by name or as a policy string; `key` names it in errors.

    `instead` has precedence over the presets, but not over what the text or a policy in the file says.

    Raises:
        OptionError: it is neither a policy, nor the name of one, nor a policy string.

    Warns:
        PolicyWarning: a setting has no effect.
    """
    if isinstance(retry, RetryPolicy):
        return retry
    if isinstance(retry, HedgingPolicy):
        raise OptionError(key, retry, "a retry policy, because only the calls of a channel can be hedged")
    if not isinstance(retry, str) or not retry:
        raise OptionError(key, retry, "a RetryPolicy, a policy name, or a policy string such as 'retry: 5, delay: 1s'")
    named: Mapping[str, Source] = config.policies if config else {}
    source = begin_with(retry, key) if retry in named else read_text(retry, key)
    base = named.get(str(source["preset"].value), {}) if "preset" in source else {}
    resolved = resolve_retry([source, {part: value for part, value in instead.items() if part not in base}], named)
    warn_of((*resolved.remarks, *missing_jitter(source, resolved.policy)))
    return resolved.policy


def read_policy(key: str, value: object, config: Config | None) -> CallPolicy:
    """Return a retry policy as `read_retry` does, or a hedging policy that is given as an object or as a string."""
    if isinstance(value, HedgingPolicy):
        return value
    if isinstance(value, str) and re.search(_HEDGES, value):
        return resolve_hedging(read_string(value, None, key)).policy
    return read_retry(key, value, config)
