"""The loop that drives a machine, its table of transitions, and the effects that several machines share.

Every shell is a `Stepper`: it gives its machine one input at a time, and executes the effects. So what happens if an
effect leads to the next input, or raises, is the same for the machines of connections, of calls and of grpcio's core.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from grpc_backoff.base.base_errors import IllegalTransition
from grpc_backoff.base.record import NamedTuple

InputT = TypeVar("InputT")
EventT_co = TypeVar("EventT_co", covariant=True)
HandlerT = TypeVar("HandlerT")
StateT = TypeVar("StateT")


class Transitions(dict[tuple[enum.Enum, type[Any]], HandlerT]):
    """A machine's transitions: for each pair of phase and kind of input, the function that takes the step."""

    def __init__(self, pairs: Mapping[tuple[enum.Enum, type[Any]], HandlerT]) -> None:
        super().__init__(pairs)

    @classmethod
    def by_phase(cls, phases: Mapping[Any, Mapping[type[Any], HandlerT]]) -> Transitions[HandlerT]:
        """Return the table in which each phase has these inputs."""
        return cls({(phase, kind): handler for phase, inputs in phases.items() for kind, handler in inputs.items()})

    def __missing__(self, pair: tuple[enum.Enum, type[Any]]) -> HandlerT:
        """Raise an `IllegalTransition`, because a machine gets no other input in this phase unless there is a bug."""
        phase, kind = pair
        raise IllegalTransition(f"{kind.__name__} in phase {phase.name}")


def ignored(_machine: object, state: StateT, *_: object) -> tuple[StateT, list[Any]]:
    """Take the step of an input that changes nothing."""
    return state, []


class AbandonAttempt(NamedTuple):
    """Abandon the attempt in flight, because its result is no longer needed."""


class ArmTimer(NamedTuple):
    """Arm a timer that sends the machine its timer input at the time `at`; replaces a timer that is already armed."""

    at: float


class CancelTimer(NamedTuple):
    """Cancel the timer, if one is armed."""


class Emit(NamedTuple, Generic[EventT_co]):
    """Send an event to the listeners."""

    event: EventT_co


if TYPE_CHECKING:

    class Cancellable(Protocol):
        """A timer, a call or a task."""

        def cancel(self) -> object:
            """End it; harmless if it has ended."""
            ...
else:
    Cancellable = Any  # for programs that evaluate the annotations of a public class derived from `Stepper`


class Stepper(ABC, Generic[InputT]):
    """Drives a machine; subclasses hold its state, step it, and execute its effects.

    Inputs are processed one after another, in the order in which they were given. An input that an effect leads to
    waits until all effects of the current step are done, however deep in the stack it is given. If a step or an effect
    raises, the rest of that step's effects are left out; `_interrupted` decides what becomes of the error.

    This is not thread-safe. A shell that several threads feed holds a lock in `_drain`.
    """

    _stepping = False
    _timer: Cancellable | None = None
    """The armed timer; None if no timer is armed."""

    def __init__(self) -> None:
        self._inputs: list[InputT] = []  # a deque would take a dozen times the memory, for one or two inputs

    def feed(self, input_: InputT) -> None:
        """Step the machine with an input, or let it wait if a step is in progress."""
        self._inputs.append(input_)
        if not self._stepping:
            self._drain()

    def _drain(self) -> None:
        """Process the waiting inputs; if a step is in progress, they are processed after it."""
        if self._stepping:
            return
        inputs, self._stepping = self._inputs, True
        try:
            while inputs:
                if self._step(inputs.pop(0)):
                    break
        except Exception as error:  # noqa: BLE001 - from a generator, a clock or a connector supplied by the program
            self._interrupted(error)
        finally:
            self._stepping = False
            self._drained()

    @abstractmethod
    def _step(self, input_: InputT) -> bool | None:
        """Replace the machine's state and execute the effects; True if the inputs have to wait for another `_drain`."""

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _interrupted(self, error: Exception) -> None:
        """Handle the error of a step or of an effect. By default, it is raised to the caller of `feed`."""
        raise error

    def _drained(self) -> None:
        """Do what follows when all inputs have been processed."""
