"""The pool policy: its defaults and the checks of its settings."""

from __future__ import annotations

import pytest

from grpc_backoff.config.options import read_options
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.pooling import PoolPolicy


def test_default_is_one_connection():
    """PO-5: by default, a channel has one connection, and only the core resolves its target."""
    policy = PoolPolicy()

    assert (policy.max_connections, policy.resolve_every, policy.round_robin) == (1, 0.0, False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_connections", 0),
        ("max_connections", 1001),
        ("max_connections", 1.5),
        ("streams_per_connection", 0),
        ("resolve_every", 0.99),
        ("quiet_after", 0.09),
        ("answer_within", 0.0),
        ("answer_within", 3601.0),
        ("watch_network", 2),
    ],
)
def test_bad_values(field, value):
    """PO-8, CH-10: a wrong value is rejected, and the error names the option."""
    with pytest.raises(OptionError, match=rf"^grpc_backoff\.{field}=.*: expected "):
        read_options([(f"grpc_backoff.{field}", value)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_connections", 1000),
        ("resolve_every", 1),
        ("resolve_every", 0),
        ("quiet_after", 0.1),
        ("quiet_after", 0),
        ("answer_within", 3600),
    ],
)
def test_limits(field, value):
    """PO-7, PO-8: the limits themselves are allowed."""
    assert getattr(read_options([(f"grpc_backoff.{field}", value)]).pooling, field) == value
