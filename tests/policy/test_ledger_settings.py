"""A ledger's limits and times, as a value."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.ledger_settings import KEEPING, LedgerSettings
from grpc_backoff.policy.presets import LEDGER


def test_defaults():
    """LG-2, LG-11, LG-14: the preset sets everything, such as 5 s for locks and seven days for finished operations."""
    settings = LedgerSettings(**LEDGER)

    assert set(LEDGER) == {setting.name for setting in KEEPING} == {part.name for part in fields(settings)}
    assert (settings.lock_timeout, settings.keep, settings.metadata) == (5.0, 7 * 24 * 3600.0, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("lease", 0), ("keep", float("inf")), ("grace", -1), ("max_rows", 0), ("concurrency", True), ("policy", "")),
        *(("method_concurrency", value) for value in (3, "shop.Orders/Place", {"shop.Orders/Place": 0})),
        # Credentials and invalid keys cannot be stored, and keys of HTTP/2 and gRPC would never reach the server.
        *(("metadata", ("x-tenant", key)) for key in ("authorization", "cookie", "X-Tenant", "", 1)),
        *(("metadata", (key,)) for key in (":path", "grpc-previous-rpc-attempts", "te")),
    ],
)
def test_refused(name, value):
    """LG-11, LG-14: as with the file, the error for a wrong value in code names the setting."""
    with pytest.raises(OptionError, match=rf"^LedgerSettings\.{name}\b"):
        replace(LedgerSettings(**LEDGER), **{name: value})


@pytest.mark.parametrize("value", [{"/shop.Orders/Place": 2}, {"shop.Orders/Place": 2}, [("shop.Orders/Place", 2)]])
def test_limits_of_methods(value):
    """LG-14: a limit of attempts at a time can be set for each method."""
    settings = replace(LedgerSettings(**LEDGER), method_concurrency=value)
    assert settings.method_concurrency == (("/shop.Orders/Place", 2),)
