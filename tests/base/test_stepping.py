"""What drives any machine: its table, and in which order inputs and effects take their turns."""

from __future__ import annotations

import pytest

from grpc_backoff.base.base_errors import IllegalTransition
from grpc_backoff.base.status import State
from grpc_backoff.base.stepping import CancelTimer, Emit, Stepper, Transitions


class Shell(Stepper):
    """Its machine answers an input with the effects that a table names; an effect does what `acts` says."""

    def __init__(self, effects, **acts):
        super().__init__()
        self.effects, self.acts, self.done, self.drains, self.waits = effects, acts, [], 0, False

    def _step(self, given):
        if self.waits:
            self._inputs.insert(0, given)
            return True
        self.done.append(given)
        for effect in self.effects.get(given, ()):
            self.done.append(effect)
            if effect in self.acts:
                self.acts[effect](self)
        return None

    def _drained(self):
        self.drains += 1


def test_effects_come_before_the_inputs_that_they_lead_to():
    """CB-1: an input that an effect leads to is processed after the current step's effects, in the order given."""
    shell = Shell({"A": ["a", "b"], "B": ["c"]}, a=lambda shell: (shell.feed("B"), shell.feed("C")))
    shell.feed("A")
    assert shell.done == ["A", "a", "b", "B", "c", "C"]
    assert shell.drains == 1


def test_deep_inside_an_effect():
    """CB-1: however deep in the stack an input is given, no step begins before the current one has ended."""
    shell = Shell(
        {"A": ["a", "z"], "B": ["b"]}, a=lambda shell: (shell.feed("B"), shell._drain()), b=lambda s: s.feed("C")
    )
    shell.feed("A")
    assert shell.done == ["A", "a", "z", "B", "b", "C"]


def test_an_error_in_an_effect():
    """CB-10: an effect that raises ends its step; the giver gets the error, and the next input is processed."""

    def fail(shell):
        shell.feed("B")
        raise ValueError("a")

    shell = Shell({"A": ["a", "left out"]}, a=fail)
    with pytest.raises(ValueError, match="a"):
        shell.feed("A")
    assert (shell.done, shell.drains) == (["A", "a"], 1)
    shell.feed("C")
    assert shell.done == ["A", "a", "B", "C"]


def test_a_step_may_wait():
    """SH-3: a machine that cannot be stepped now keeps its inputs, in order, until it is drained again."""
    shell = Shell({})
    shell.waits = True
    shell.feed("A")
    shell.feed("B")
    assert shell.done == []
    shell.waits = False
    shell._drain()
    assert shell.done == ["A", "B"]


def test_transitions():
    """CB-1: a table has the pairs that its phases list, and any other pair is an error that names both."""
    shared = {Emit: "emits"}
    table = Transitions.by_phase({State.IDLE: shared, State.READY: {**shared, CancelTimer: "cancels"}})
    assert table == {(State.IDLE, Emit): "emits", (State.READY, Emit): "emits", (State.READY, CancelTimer): "cancels"}
    with pytest.raises(IllegalTransition, match=r"^CancelTimer in phase IDLE$"):
        table[State.IDLE, CancelTimer]
