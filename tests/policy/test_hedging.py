"""The hedging policy's checks."""

from __future__ import annotations

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.hedging import HedgingPolicy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 1),
        ("max_attempts", 6),
        ("max_attempts", None),
        ("hedging_delay", -1),
        ("non_fatal_codes", ["NO_CODE"]),
        ("non_fatal_codes", ""),
        ("deadline", 0),
    ],
)
def test_an_invalid_value_is_an_error(field, value):
    """HG-1: each value is checked, and the error names it."""
    with pytest.raises(OptionError, match=rf"^HedgingPolicy\.{field}="):
        HedgingPolicy(**{"hedging_delay": 0.05, "max_attempts": 3} | {field: value})
