"""The limits and times of a ledger as a value."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.ledger import LEDGER_CHECKS, LedgerSettings
from grpc_backoff.policy.presets import LEDGER


def test_defaults():
    """LG-2, LG-11, LG-14: the preset says every setting: 5 s for a lock, seven days for what has finished."""
    settings = LedgerSettings(**LEDGER)

    assert set(LEDGER) == set(LEDGER_CHECKS) == {part.name for part in fields(settings)}
    assert (settings.lock_timeout, settings.keep, settings.metadata) == (5.0, 7 * 24 * 3600.0, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [("lease", 0), ("keep", float("inf")), ("grace", -1), ("max_rows", 0), ("concurrency", True), ("policy", "")],
)
def test_refused(name, value):
    """LG-14: a wrong value in Python is refused as one in the file is, by its name."""
    with pytest.raises(OptionError) as caught:
        replace(LedgerSettings(**LEDGER), **{name: value})

    assert caught.value.key == f"LedgerSettings.{name}"


@pytest.mark.parametrize("name", ["authorization", "cookie", "X-Tenant", "", 1])
def test_metadata_that_may_not_be_stored(name):
    """LG-11: no allow-list can name what holds credentials, or what is no key."""
    with pytest.raises(OptionError, match=r"LedgerSettings\.metadata"):
        replace(LedgerSettings(**LEDGER), metadata=("x-tenant", name))
