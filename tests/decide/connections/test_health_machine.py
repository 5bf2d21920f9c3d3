"""The machine that watches the health of one connection, without a clock."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from grpc_backoff.base.stepping import ArmTimer, CancelTimer
from grpc_backoff.decide.connections import health_machine as h
from grpc_backoff.policy.presets import CONNECT

IDLE = CONNECT.idle_timeout
MACHINE = h.HealthMachine(CONNECT)
SERVING, NOT_SERVING = "", "the server reports NOT_SERVING"


class Driver:
    """Steps a machine, from the beginning of its first stream."""

    def __init__(self, prove_within=math.inf, **policy):
        self.machine = h.HealthMachine(replace(CONNECT, **policy))
        self.now, self.effects, self.timer = 100.0, [], math.inf
        self.state = self.machine.begin(self.now, prove_within)
        self.feed(h.HealthTimerFired(-math.inf))

    def feed(self, given, after=0.0):
        self.now += after
        self.state, self.effects = self.machine.step(self.state, given, self.now, random.Random(1))
        for effect in self.effects:
            if isinstance(effect, ArmTimer):
                self.timer = effect.at
        return self

    def wake(self, used=-math.inf, *, alive=True):
        self.now, self.timer = self.timer, math.inf
        return self.feed(h.HealthTimerFired(used, alive))

    def told(self):
        return [effect.problem for effect in self.effects if isinstance(effect, h.Tell)]


def test_a_new_connection():
    """RO-1: a stream is begun at once, and the connection serves as long as nothing is known."""
    driver = Driver()
    assert driver.effects == [h.BeginStream(), ArmTimer(100.0 + IDLE)]
    assert driver.state.problem is None


def test_what_the_server_says():
    """RO-1: each change of the health is reported once."""
    driver, said = Driver(), (SERVING, SERVING, NOT_SERVING, NOT_SERVING, SERVING)
    told = [driver.feed(h.Answered(problem)).told() for problem in said]
    assert told == [[""], [], [NOT_SERVING], [], [""]]


def test_a_server_without_a_health_service():
    """RO-1: UNIMPLEMENTED means that the server serves, and it is not asked again."""
    driver = Driver().feed(h.Ended("UNIMPLEMENTED"))
    assert driver.effects == [h.Tell(""), CancelTimer()]
    assert driver.state.phase is h.HealthPhase.OVER
    assert driver.feed(h.HealthTimerFired(0.0), 3600).effects == []


def test_a_stream_that_ends_without_an_answer():
    """RO-1: the server does not serve, and the streams back off as attempts do (gRFC A17)."""
    driver, gaps = Driver(), []
    for number in range(4):
        driver.feed(h.Ended("PERMISSION_DENIED", "not for you"), 0.01)
        assert driver.told() == (
            [] if number else ["its health service ended the call with PERMISSION_DENIED: not for you"]
        )
        began = driver.state.started
        assert driver.wake().effects[0] == h.BeginStream()
        gaps.append(driver.now - began)
    assert [0.8 * 1.6**number <= gap <= 1.2 * 1.6**number for number, gap in enumerate(gaps)] == [True] * 4
    driver.feed(h.Answered(SERVING))
    assert (driver.told(), driver.state.failures) == ([""], 0)


def test_a_stream_that_ends_after_an_answer():
    """RO-1: what the server said last holds, and the next stream begins at once, but at most one per second."""
    driver = Driver().feed(h.Answered(NOT_SERVING)).feed(h.Ended("OK"), 0.2)
    assert (driver.told(), driver.timer) == ([], 101.0)
    driver.wake().feed(h.Answered(NOT_SERVING)).feed(h.Ended("UNAVAILABLE"), 60)
    assert driver.timer == driver.now + h.AGAIN_AFTER
    assert driver.wake().effects[0] == h.BeginStream()


@pytest.mark.parametrize("before", [[], [h.Answered(NOT_SERVING)], [h.Ended("INTERNAL")]])
@pytest.mark.parametrize(
    "end", [h.Ended("UNAVAILABLE", alive=False), h.HealthTimerFired(0.0, alive=False), h.Unwatched()]
)
def test_the_connection_ends(before, end):
    """RO-1, CB-16: no stream is started on a connection that has ended, and its end says nothing about the health."""
    driver = Driver()
    for each in before:
        driver.feed(each)
    problem = driver.state.problem
    driver.feed(end, 0.5)
    assert driver.told() == ([""] if problem is None and not isinstance(end, h.Unwatched) else [])
    assert (driver.state.phase, driver.effects[-1]) == (h.HealthPhase.OVER, CancelTimer())
    assert h.EndStream() in driver.effects


def test_a_replacement_waits_for_the_first_answer():
    """RO-1: the health of a replacement that nobody knows in time is taken to be good and is still watched."""
    driver = Driver(prove_within=5.0, idle_timeout=1.0)
    assert driver.timer == 105.0, "it does not go idle meanwhile"
    assert driver.wake().effects == [h.Tell(""), ArmTimer(101.0)]
    driver = Driver(prove_within=5.0).feed(h.Answered(NOT_SERVING), 4.9)
    assert driver.told() == [NOT_SERVING]
    assert driver.wake().told() == []


def test_an_unused_connection_goes_idle():
    """CB-14: an open stream is no use of the connection; a call is."""
    driver = Driver().feed(h.Answered(SERVING))
    driver.wake(used=400.0)
    assert (driver.effects, driver.timer) == ([ArmTimer(400.0 + IDLE)], 400.0 + IDLE)
    assert driver.wake(used=400.0).effects == [h.EndStream(), h.GoIdle(), CancelTimer()]
    assert Driver(idle_timeout=math.inf).effects == [h.BeginStream()]
