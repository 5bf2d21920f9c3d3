"""The table of settings, and how several sources make one policy."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.policy.settings import PREFIX, SETTINGS, check_order, connect_policy, suggestion


def test_table_is_complete():
    """BP-3: all that a connect policy holds can be set, by one name and one option each."""
    names = {setting.name for setting in SETTINGS}

    assert names - {"preset", "initial_backoff", "max_backoff", "multiplier", "jitter"} == {
        field.name for field in fields(ConnectPolicy)
    } - {"backoff"}
    assert len(names) == len({setting.option for setting in SETTINGS}) == len(SETTINGS)
    assert all(setting.option.startswith(("grpc.", PREFIX)) for setting in SETTINGS)


@pytest.mark.parametrize("sources", [[], [{}], [{}, {}]])
def test_nothing_said(sources):
    """BP-3: where no source says anything the preset holds."""
    assert connect_policy(sources) == CONNECT


def test_first_source_has_most_say():
    """BP-3: each value comes from the first source that has it."""
    policy = connect_policy([{"stable_after": 1.0}, {"stable_after": 2.0, "jitter_first": True}])

    assert policy == replace(CONNECT, stable_after=1.0, jitter_first=True)


@pytest.mark.parametrize(
    ("sources", "initial", "cap"),
    [
        ([{"max_backoff": 0.5}], 0.5, 0.5),
        ([{"initial_backoff": 500.0}], 500.0, 500.0),
        ([{"max_backoff": 2.0}, {"initial_backoff": 3.0}], 2.0, 2.0),
        ([{"initial_backoff": 3.0}, {"max_backoff": 2.0}], 3.0, 3.0),
        ([{"initial_backoff": 3.0}, {"initial_backoff": 1.0, "max_backoff": 2.0}], 3.0, 3.0),
        ([{"initial_backoff": 2.0}, {"max_backoff": 3.0}], 2.0, 3.0),
    ],
)
def test_initial_above_max(sources, initial, cap):
    """BP-3: of a maximum and a higher initial backoff, the one whose source has more say holds."""
    backoff = connect_policy(sources).backoff

    assert (backoff.strategy.base, backoff.cap) == (initial, cap)


def test_one_source_against_itself():
    """CH-10: one source that names a maximum below its own initial backoff is refused in its user's words."""
    given = {"initial_backoff": ("a.initial", 20), "max_backoff": ("a.max", 10)}

    with pytest.raises(OptionError) as caught:
        check_order(given, {"initial_backoff": 0.02, "max_backoff": 0.01})

    assert str(caught.value) == "a.max = 10 is not allowed; at least a.initial (20) is"


def test_suggestion():
    """CH-10: the nearest right key for a misspelt one, all of them for one that is near to none."""
    keys = {"jitter": "a.jitter", "jitters": "a.jitter", "preset": "a.preset"}

    assert suggestion("JITER", keys, "key") == "no key has this name, did you mean 'a.jitter'?"
    assert suggestion("x", keys, "key") == "no key has this name, choose from: a.jitter, a.preset"
