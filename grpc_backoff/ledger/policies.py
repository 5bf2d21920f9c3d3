"""The policies that operations name, as text, and as a ledger applies them (LG-1, LG-14)."""

from __future__ import annotations

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.file import Config
from grpc_backoff.config.methods import read_retry
from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.ledger.parameters import policy_text
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.ledger.transitions import ledger_policy
from grpc_backoff.policy.hedging import HedgingPolicy, Repeats
from grpc_backoff.policy.ledger_settings import LedgerSettings
from grpc_backoff.policy.presets import PRESETS
from grpc_backoff.policy.retry import Retry, RetryPolicy

_POLICIES = 1000  # how many policies are kept, because texts may differ for each operation
_KNOWN_BEFORE = PRESETS.keys() - {"durable"}  # the presets that 0.2.0 knows as well


class Policies:
    """The policies that operations name, as a ledger applies them."""

    def __init__(self, settings: LedgerSettings, config: Config | None) -> None:
        """Look policies up in a file, if there is one; `settings` name the default."""
        self.settings = settings
        self._config = config
        self._read: dict[str, RetryPolicy] = {}

    def of(self, text: str) -> RetryPolicy:
        """Return the policy described by an operation's text, as a ledger applies it; OptionError if it is unknown."""
        policy = self._read.get(text) if isinstance(text, str) else None  # anything else is refused below
        if policy is None:
            if len(self._read) >= _POLICIES:
                self._read.clear()
            policy = self._read[text] = ledger_policy(read_retry("policy", text, self._config))
        return policy

    def of_any(self, text: str) -> RetryPolicy:
        """Return the policy as `of` does, or the ledger's default policy if the text names an unknown one."""
        try:
            return self.of(text)
        except OptionError:
            return self.of(self.settings.policy)

    def text(self, method: str, policy: Repeats | None) -> str:
        """Return the text for the policy of an operation of this method: the caller's, the file's or the default."""
        if policy is None:
            config = self._config if self.settings.methods else None
            filed = None if config is None else config.retry_policy(method.removeprefix("/"))
            if filed is None:
                return self.settings.policy
            policy = filed.policy
        if isinstance(policy, HedgingPolicy):
            raise OptionError("policy", policy, "a retry policy, because a ledger never has two attempts at once")
        self.warn_of(policy)
        if isinstance(policy, RetryPolicy):
            text = policy_text(policy)
            if self.of(text) != ledger_policy(policy):
                raise OptionError("policy", policy, "a policy that can be written as a policy string")
            return text
        return policy

    def stored(self, text: str, store: Store) -> str:
        """Return the text of a policy as it is stored: while 0.2.0 may deliver, one that it can read (LG-18).

        It gives up operations whose policy it does not know.
        """
        if not store.is_oldest or text in _KNOWN_BEFORE or (self._config and text in self._config.policies):
            return text
        policy = self.of(text)
        if policy.never_ran_only:
            store.check_tables("a policy with never_ran_only")
        return policy_text(policy)

    def warn_of(self, policy: Retry) -> None:
        """Warn of a policy with neither a deadline nor a limited number of attempts, as for calls (BP-2)."""
        read = policy if isinstance(policy, RetryPolicy) else self.of(policy)
        warn_of(doubts(read, bounded=read.deadline is not None))
