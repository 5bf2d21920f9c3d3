"""Determines the policy of each method of a channel, from the argument, the service config or the file.

The precedence is that of all settings (BP-3): the argument `retry`, then the channel option `grpc.service_config`, then
the file. Within a source, the most specific entry applies: the one for the method, for its service, or for all methods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config import names
from grpc_backoff.config.core_options import Pairs
from grpc_backoff.config.options import Options
from grpc_backoff.config.policy_string import read_string
from grpc_backoff.config.remarks import unspread, warn_of
from grpc_backoff.config.service_config import ServiceConfig
from grpc_backoff.config.settings import begin_with, resolve_hedging, resolve_retry
from grpc_backoff.config.sources import Source, SourceValue
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.hedging import CallPolicy, HedgingPolicy, Repeats
from grpc_backoff.policy.presets import REPLAY_LIMIT
from grpc_backoff.policy.retry import RETRYING, Retry, RetryPolicy

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config

_HEDGES = r"(?:^|,)\s*hedge\s*:"
_ENABLE_RETRIES = "grpc.enable_retries"
_ENDLESS: Source = {part: SourceValue(None, "", None, "subscription") for part in ("max_attempts", "deadline")}


@dataclass(frozen=True, slots=True)
class CallPolicies:
    """The retry and hedging policies for one channel's calls.

    Attributes:
        argument: the policies from the argument `retry`, by `package.Service/Method`, `package.Service` or `*`.
        service_config: the service config from the channel options.
        filed: the policies from the file, in the same way.
        config: the configuration file, whose policies a call may name; None if there is none.
        budget: the retry budget for the channel's target (RT-9); None for no limit.
        core_options: the channel options that are passed on to grpcio's core.
        replay_limit: how many bytes of a stream's requests are buffered for replay (RT-8).
    """

    argument: Mapping[str, CallPolicy] = field(default_factory=dict)
    service_config: ServiceConfig = field(default_factory=ServiceConfig)
    filed: Mapping[str, CallPolicy] = field(default_factory=dict)
    config: Config | None = None
    budget: RetryBudget | None = None
    core_options: Pairs = ()
    replay_limit: int = REPLAY_LIMIT

    def of(self, method: str) -> CallPolicy | None:
        """Return the policy for a method, given as `/package.Service/Method`; None if its calls have none."""
        entry = names.nearest_method(self.argument, method)
        if entry is not None:
            return self.argument[entry]
        if native := self.service_config.of(method).retry:
            return native
        entry = names.nearest_method(self.filed, method)
        return None if entry is None else self.filed[entry]

    def named(self, retry: Repeats) -> CallPolicy:
        """Return the policy that a single call requests instead of its method's policy."""
        return _read_policy("retry", retry, self.config)

    def of_subscription(self, retry: Retry) -> RetryPolicy:
        """Return a subscription's policy: without the limits of a preset, which are meant for calls (SB-4)."""
        return read_retry("policy", retry, self.config, _ENDLESS)

    def stand_in(self) -> bool:
        """Return whether all calls of the channel have policies that retry UNAVAILABLE.

        If so, the core's own retries can be turned off altogether, including transparent ones (RT-10). A hedging policy
        for more than one method may leave some of them, those with streamed requests, without a policy (HG-8).
        """
        asked: list[tuple[str, CallPolicy]] = []
        native = {path or names.ALL: config.retry for path, config in self.service_config.methods.items()}
        for policies in (self.argument, native, self.filed):
            asked += [(entry, policy) for entry, policy in policies.items() if policy is not None]
            if names.ALL in policies and None not in policies.values():  # no method falls through to the next source
                return all(_repeats_unavailable(*pair) for pair in asked)
        return False

    def warn_of_stream(self, method: str, policy: HedgingPolicy) -> None:
        """Warn that a method's calls are not hedged because they send streams, if the policy names the method (HG-8).

        Warns:
            PolicyWarning: it does. A policy for a service or for all methods is meant for those that can be hedged.
        """
        entry, config = method.removeprefix("/"), self.service_config.methods.get(method)
        named = self.argument.get(entry), config and config.retry, self.filed.get(entry)
        if any(known is policy for known in named):
            warn_of([f"hedging of {method}: expected a retry policy, because calls that send streams are not hedged"])


def _repeats_unavailable(entry: str, policy: CallPolicy) -> bool:
    if isinstance(policy, HedgingPolicy):
        return "/" in entry.strip("/") and "UNAVAILABLE" in policy.non_fatal_codes
    return policy.max_attempts != 1 and "UNAVAILABLE" in policy.codes


def read_call_policies(
    retry: Repeats | Mapping[str, Repeats] | None,
    budget: RetryBudget | None,
    options: Options,
) -> CallPolicies:
    """Return the retry policies described by a channel's arguments, options and file.

    Raises:
        OptionError: a policy is unknown or has an invalid value, or a key does not name a method.

    Warns:
        PolicyWarning: a setting of a policy has no effect.
    """
    if budget is not None and not isinstance(budget, RetryBudget):
        raise OptionError("retry_budget", budget, "a RetryBudget")
    config = options.config
    filed = config.retry_budget if config else None
    policies = CallPolicies(
        argument=_read_argument(retry, config),
        service_config=options.service_config,
        filed={method: resolved.policy for method, resolved in config.methods.items()} if config else {},
        config=config,
        budget=budget or options.service_config.budget or (filed.policy if filed else None),
        core_options=options.core_options,
        replay_limit=options.replay_limit,
    )
    if policies.stand_in():  # at the front: grpcio uses the first of two options with the same key
        policies = replace(policies, core_options=((_ENABLE_RETRIES, 0), *options.core_options))
    return policies


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
    written = ":" in retry or "=" in retry  # an "=" raises an error with a suggestion
    source = read_string(retry, RETRYING, key) if written else begin_with(retry, key)
    base = named.get(str(source["preset"].value), {}) if "preset" in source else {}
    resolved = resolve_retry([source, {part: value for part, value in instead.items() if part not in base}], named)
    warn_of((*resolved.remarks, *unspread(source, resolved.policy)))
    return resolved.policy


def _read_policy(key: str, value: object, config: Config | None) -> CallPolicy:
    """Return a retry policy as `read_retry` does, or a hedging policy that is given as an object or as a string."""
    if isinstance(value, HedgingPolicy):
        return value
    if isinstance(value, str) and re.search(_HEDGES, value):
        return resolve_hedging(read_string(value, None, key)).policy
    return read_retry(key, value, config)


def _read_argument(retry: object, config: Config | None) -> dict[str, CallPolicy]:
    by_method = retry if isinstance(retry, Mapping) else {} if retry is None else {names.ALL: retry}
    names.check_methods("retry", by_method)
    return {
        entry: _read_policy("retry" if policy is retry else f'retry."{entry}"', policy, config)
        for entry, policy in by_method.items()
    }
