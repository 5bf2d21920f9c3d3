"""Which retry policy holds for each method of one channel: the argument's, the service config's or the file's.

The order is that of all settings (BP-3): what the argument `retry` has for a method, else the channel option
`grpc.service_config`, else the file. Within one of them the nearest name holds: the method, its service, all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from grpc_backoff.config import names
from grpc_backoff.config.file import Config
from grpc_backoff.config.policy_string import parse_retry
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.service_config import (
    from_service_config,
    method_configs,
    method_paths,
    read_json,
    read_throttling,
)
from grpc_backoff.config.settings import begin_with, resolve_retry
from grpc_backoff.config.sources import Source
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.presets import REPLAY_LIMIT
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.record import value

__all__ = ["CallPolicies", "Retry", "read_call_policies", "read_retry"]

Retry = RetryPolicy | str
"""A policy; or its name, of a preset or of the file's own; or RFC-006's words, which have a colon."""

Pairs = tuple[tuple[Any, Any], ...]

_SERVICE_CONFIG = "grpc.service_config"
_ENABLE_RETRIES = "grpc.enable_retries"
_REPLAY_LIMIT = "grpc.per_rpc_retry_buffer_size"


@value(frozen=True, slots=True)
class CallPolicies:
    """The retry policies of one channel's calls.

    Attributes:
        argument: those of the argument `retry`, by `package.Service/Method`, `package.Service` or `*`.
        service_config: those of the channel option, by the same names; None where its nearest entry has none.
        config: the file; None without one.
        budget: what limits the retries of the channel's target (RT-9); None for no limit.
        core: the channel options that are left to grpcio's core.
        replay_limit: how many bytes of a stream's requests are kept to send them again (RT-8).
    """

    argument: Mapping[str, RetryPolicy] = field(default_factory=dict)
    service_config: Mapping[str, RetryPolicy | None] = field(default_factory=dict)
    config: Config | None = None
    budget: RetryBudget | None = None
    core: Pairs = ()
    replay_limit: int = REPLAY_LIMIT

    def of(self, method: str) -> RetryPolicy | None:
        """Return the policy of a method, given as `/package.Service/Method`; None if its calls are not retried."""
        for policies in (self.argument, self.service_config):
            entry = names.nearest_method(policies, method)
            policy = None if entry is None else policies[entry]
            if policy is not None:
                return policy
        return self._filed(method)

    def named(self, retry: Retry) -> RetryPolicy:
        """Return the policy that a call asks for in place of its method's own."""
        return read_retry("retry", retry, self.config)

    def stand_in(self) -> bool:
        """Return whether every call that finds no server is retried by these policies.

        Then the core's own retries can be off altogether, the transparent ones too (RT-10).
        """
        asked: list[RetryPolicy] = []
        filed = {entry: self._filed(entry) for entry in self.config.methods} if self.config else {}
        for policies in (self.argument, self.service_config, filed):
            asked += filter(None, policies.values())
            if names.ALL in policies and None not in policies.values():  # no method is left to the next source
                return all(policy.max_attempts != 1 and "UNAVAILABLE" in policy.codes for policy in asked)
        return False

    def left_to_core(self) -> bool:
        """Return whether grpc's core retries some calls by itself: its service config has what no policy here can."""
        parsed = read_json(_option(self.core, _SERVICE_CONFIG))
        if not _option(self.core, _ENABLE_RETRIES, 1) or not isinstance(parsed, dict):
            return False
        try:
            return any("retryPolicy" in entry for entry in method_configs(parsed))
        except OptionError:
            return False

    def _filed(self, method: str) -> RetryPolicy | None:
        resolved = self.config.retry_policy(method) if self.config else None
        return None if resolved is None else resolved.policy


def read_call_policies(
    retry: Retry | Mapping[str, Retry] | None,
    budget: RetryBudget | None,
    core: Pairs,
    config: Config | None,
) -> CallPolicies:
    """Return the retry policies that a channel's arguments, options and file describe.

    What a service config says of retries is taken out of the options that the core gets: its retries would multiply
    with these (RT-10). A service config with wrong values is left as it is, for the core to refuse. So is
    one with a multiplier below 1, which no policy here can have: the core carries it out.

    Raises:
        OptionError: a policy is unknown or has a wrong value, or a key is the name of no method.

    Warns:
        PolicyWarning: something that a policy says has no effect.
    """
    if budget is not None and not isinstance(budget, RetryBudget):
        raise OptionError("retry_budget", budget, "a RetryBudget")
    argument = _read_argument(retry, config)
    native, throttling, core = _take_over(core)
    filed = config.budget() if config else None
    policies = CallPolicies(
        argument=argument,
        service_config=native,
        config=config,
        budget=budget or throttling or (filed.policy if filed else None),
        core=core,
        replay_limit=_replay_limit(core),
    )
    if policies.stand_in():  # in front: of two options with one key the first wins
        policies = replace(policies, core=((_ENABLE_RETRIES, 0), *core))
    return policies


def read_retry(key: str, retry: object, config: Config | None) -> RetryPolicy:
    """Return the policy that a name or words stand for; `key` is what an error calls it.

    Raises:
        OptionError: it is neither a policy, nor the name of one, nor words.

    Warns:
        PolicyWarning: something that it says has no effect.
    """
    if isinstance(retry, RetryPolicy):
        return retry
    if not isinstance(retry, str) or not retry:
        raise OptionError(
            key, retry, "a RetryPolicy, the name of one, or a policy string such as 'retry: 5, delay: 1s'"
        )
    named: Mapping[str, Source] = config.policies if config else {}
    if ":" in retry or "=" in retry:  # the latter is an error that says what was meant
        return parse_retry(retry, named, key).policy
    resolved = resolve_retry([begin_with(retry, key)], named)
    warn_of(resolved.remarks)
    return resolved.policy


def _read_argument(retry: object, config: Config | None) -> dict[str, RetryPolicy]:
    if retry is None:
        return {}
    if not isinstance(retry, Mapping):
        return {names.ALL: read_retry("retry", retry, config)}
    names.check_methods("retry", retry)
    return {entry: read_retry(f'retry."{entry}"', of_it, config) for entry, of_it in retry.items()}


def _take_over(core: Pairs) -> tuple[dict[str, RetryPolicy | None], RetryBudget | None, Pairs]:
    """Return what the service config says of retries, and the options without it."""
    parsed = read_json(_option(core, _SERVICE_CONFIG))
    if not _option(core, _ENABLE_RETRIES, 1) or not isinstance(parsed, dict):
        return {}, None, core
    policies: dict[str, RetryPolicy | None] = {}
    taken = False
    try:
        budget = read_throttling(parsed)
        for entry in method_configs(parsed):
            native = entry.pop("retryPolicy", None)
            policy = None if native is None else from_service_config(native)
            taken = taken or policy is not None
            # Without a policy too: it is nearer to its methods than what stands for their service or for all.
            policies.update((_entry(path), policy) for path in method_paths(entry))
    except OptionError:
        return {}, None, core
    if taken:
        import json  # noqa: PLC0415 - most channels have no service config

        left = json.dumps(parsed)
        core = tuple((key, left if _text(key) == _SERVICE_CONFIG else value) for key, value in core)
    return policies, budget, core


def _replay_limit(core: Pairs) -> int:
    given = _option(core, _REPLAY_LIMIT)
    return max(0, given) if isinstance(given, int) else REPLAY_LIMIT  # as the core takes it


def _option(core: Pairs, key: str, default: object = None) -> Any:
    """Return an option's value; of two with one key the first wins, as in grpcio."""
    return next((value for given, value in core if _text(given) == key), default)


def _text(key: str | bytes) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else key  # grpcio takes both


def _entry(path: str) -> str:
    return path.strip("/") or names.ALL
