"""How a manager steps its machine, independently of the API. The APIs' own tests cover how effects are executed."""

from __future__ import annotations

import random
from unittest.mock import MagicMock

import pytest

from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.events import State
from grpc_backoff.decide.connections.happened import ChannelKey
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.registry import Registry
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing.clock import FakeClock


class Home:
    def __init__(self, due):
        self.post = due.append

    def is_closed(self):
        return False


class Manager(ConnectionManager):
    """A manager that records effects, states and notifications, and calls `amid` during each effect."""

    def __init__(self, registry):
        self.done, self.states, self.due, self.amid = [], [], [], lambda: None
        super().__init__(
            m.ConnectionMachine("target", CONNECT, ChannelKey()),
            None,
            self,
            clock=FakeClock(),
            rng=random.Random(1),
            home=Home(self.due),
            key="key",
            schedules=registry,
        )

    def hear(self, news):
        self.due.append(news)

    def _carry_out(self, effect):
        if isinstance(effect, m.TellOthers):
            super()._carry_out(effect)
        else:
            self.done.append(type(effect))
            self.amid()

    def __len__(self):
        return 0

    release = fail = None  # the effects are only recorded

    def changed(self, state):
        self.states.append(state)


@pytest.fixture
def registry():
    return Registry()


def test_inputs_wait_for_the_effects_before(registry):
    """CB-1: an input caused by an effect is processed after all effects of the current step."""
    manager = Manager(registry)
    manager.amid = lambda: manager.feed(m.CloseRequested()) if not manager._inputs else None
    manager.feed(m.ConnectionWanted())
    first = manager.done.index(m.StartAttempt)
    assert m.CancelTimer not in manager.done[: first + 1]
    assert manager.states[0] is State.CONNECTING
    assert manager.state is State.SHUTDOWN


def test_another_step_of_the_key_goes_first(registry):
    """SH-3: an input from a signal handler that interrupts another channel's step waits until that step has ended."""
    one, other = Manager(registry), Manager(registry)
    with one.membership.lock:
        one.membership.group.stepping = True
        other.feed(m.ConnectionWanted())
        assert other.done == []
        one.membership.group.stepping = False
    other.due.pop()()
    assert m.StartAttempt in other.done


def test_a_loss_is_counted_once(registry):
    """CB-8: the end of a connection that is no longer the manager's changes nothing."""
    manager = Manager(registry)
    manager.feed(m.ConnectionWanted())
    manager.feed(m.SettingsReceived())
    before = manager._state
    manager._lost(object(), Loss("it broke"))
    assert manager._state is before


def test_a_key_forgets_who_leaves(registry):
    """SH-3: a manager that has left its key receives no notifications."""
    one, other = Manager(registry), Manager(registry)
    one.close()
    other.membership.tell_others(None)
    assert one.due == []


class Eager(Registry):
    """Stands for another thread that has news for a manager that has just joined."""

    def join(self, key, hear, *rest):
        joined = super().join(key, hear, *rest)
        hear(None)
        return joined


class AtOnce:
    def post(self, work):
        work()

    def is_closed(self):
        return False


def test_news_for_a_manager_that_is_being_made():
    """SH-3: news that comes before the manager is complete means nothing to it."""
    how = {"clock": FakeClock(), "rng": random.Random(1), "home": AtOnce(), "key": "key", "schedules": Eager()}
    manager = ConnectionManager(m.ConnectionMachine("target", CONNECT, ChannelKey()), None, MagicMock(), **how)
    assert manager.state is State.IDLE
    manager.close()
    assert manager.state is State.SHUTDOWN
