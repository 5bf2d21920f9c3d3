"""The pool's machine: which slots there are, and what each is for. Times are virtual."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from grpc_backoff import ChannelKey, State
from grpc_backoff.base.base_errors import IllegalTransition
from grpc_backoff.base.status import Role
from grpc_backoff.base.stepping import ArmTimer, CancelTimer, Emit
from grpc_backoff.decide.connections import pool_records as p
from grpc_backoff.decide.connections import slot_events
from grpc_backoff.decide.connections.connection_machine import CloseRequested, ConnectionWanted, FailCalls, ReleaseCalls
from grpc_backoff.decide.connections.pool_machine import TRANSITIONS, PoolMachine
from grpc_backoff.decide.connections.pool_records import Load, PoolPhase
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.pooling import PoolPolicy
from grpc_backoff.policy.presets import CONNECT

IDLE, CONNECTING, READY, FAILING = State.IDLE, State.CONNECTING, State.READY, State.TRANSIENT_FAILURE
INITIAL = 1.0
CONNECTED = (Role.SERVING, Role.UNHEALTHY)


class Driver:
    """Steps a machine and keeps the effects of the latest step."""

    def __init__(self, addresses=None, eager=False, **policy):
        connect = replace(CONNECT, reconnect=Reconnect.EAGER if eager else Reconnect.LAZY)
        self.machine = PoolMachine("target", PoolPolicy(**policy), connect, ChannelKey(), addresses)
        self.now = 100.0
        self.state, self.effects = self.machine.begin(self.now)
        self.told = []
        self.timer = math.inf

    def feed(self, given, after=0.0):
        self.now += after
        self.state, self.effects = self.machine.step(self.state, given, self.now)
        for effect in self.effects:
            if isinstance(effect, Emit):
                event = effect.event.event()
                self.told.append((type(event).__name__, event.slot, event.endpoint))
            if isinstance(effect, ArmTimer):
                self.timer = effect.at
            if isinstance(effect, CancelTimer):
                self.timer = math.inf
        return self

    def wake(self, *loads):
        self.now, self.timer = max(self.now, self.timer), math.inf
        return self.feed(p.PoolTimerFired(loads))

    def serve(self, slot, after=0.0):
        self.now += after
        self.feed(p.SlotChanged(slot, CONNECTING))
        self.feed(p.SlotChanged(slot, READY))
        return self.feed(p.SlotServes(slot, self.now))

    def lose(self, slot, after=0.0, busy=False):
        return self.feed(p.SlotChanged(slot, IDLE, busy=busy), after)

    def done(self, *kinds):
        return [effect for effect in self.effects if isinstance(effect, kinds)]

    def roles(self):
        return {slot.number: slot.role for slot in self.state.slots}


def serving(**policy):
    """Return a pool whose first slot serves."""
    return Driver(**policy).feed(ConnectionWanted()).serve(0)


# The default: one slot.


def test_one_slot_for_the_whole_target():
    """PO-5: by default there is one slot, whose endpoint is the whole target, and no event announces it."""
    driver = Driver()
    assert driver.effects == [p.OpenSlot(0, "")]
    assert driver.feed(ConnectionWanted()).effects == [p.WantSlot(0)]
    driver.feed(p.SlotChanged(0, CONNECTING))
    assert driver.effects == [p.Show(CONNECTING)]
    driver.feed(p.SlotChanged(0, READY))
    assert driver.effects == [p.Show(READY)]
    assert driver.feed(p.SlotServes(0, 100.0)).effects == [p.Serving(((0,),)), ReleaseCalls()]
    assert driver.lose(0).effects == [p.Serving(()), p.Show(IDLE)]
    assert (driver.told, driver.timer) == ([], math.inf)


def test_failures_fail_the_calls():
    """PO-4: a failed attempt of the only slot fails the pending calls, and so does each later one."""
    driver = Driver().feed(ConnectionWanted()).feed(p.SlotChanged(0, FAILING))
    for _ in range(2):
        assert driver.feed(p.SlotFailed(0)).effects == [FailCalls()]


# Replacement (PO-3, PO-9).


def test_a_replacement_serves_before_the_old_one_retires():
    """PO-3: the old slot serves until the new one is READY and then retires; its calls may go on for hours."""
    driver = serving().feed(p.Refresh("moved"), 10)
    assert driver.effects[0] == p.OpenSlot(1, "", 0)
    assert p.WantSlot(1) in driver.effects
    driver.feed(p.SlotChanged(1, CONNECTING)).feed(p.SlotChanged(1, READY))
    assert driver.effects == [], "the channel has been READY all the time"
    driver.feed(p.SlotServes(1, 110.0))
    assert [each for each in driver.effects if not isinstance(each, Emit)] == [
        p.Serving(((1,),)),
        p.RetireSlot(0),
        ReleaseCalls(),
    ]
    assert driver.roles() == {0: Role.RETIRING, 1: Role.SERVING}
    driver.feed(p.SlotEnded(0), 7200)
    assert driver.done(p.CloseSlot) == [p.CloseSlot(0)]
    assert driver.told == [
        ("SlotOpened", 1, ""),
        ("SlotServing", 1, ""),
        ("SlotRetiring", 0, ""),
        ("SlotClosed", 0, ""),
    ]


def test_a_replacement_that_fails():
    """PO-3: if the replacement fails, the old slot goes on serving, and no call fails."""
    driver = serving().feed(p.Refresh("moved"), 10).feed(p.SlotChanged(1, FAILING))
    assert driver.feed(p.SlotFailed(1)).effects == []
    assert driver.roles() == {0: Role.SERVING, 1: Role.COMING}
    assert driver.state.state is READY


def test_a_replacement_that_rests_is_wanted_again():
    """PO-3: a replacement goes on backing off while the channel is in use, and rests when it is not (CB-14)."""
    driver = serving().feed(p.Refresh("moved"), 10)
    assert driver.feed(p.SlotChanged(1, IDLE, busy=True)).effects == [p.WantSlot(1)]
    assert driver.feed(p.SlotChanged(1, IDLE, busy=False)).effects == []


def test_the_replacement_is_the_attempt():
    """PO-3: if the old slot loses its connection, its replacement takes its place, and nothing else is dialled."""
    driver = serving().feed(p.Refresh("moved"), 10).feed(p.SlotChanged(1, CONNECTING)).lose(0, 0.1, busy=True)
    assert driver.done(p.RetireSlot, p.WantSlot, p.OpenSlot) == [p.RetireSlot(0)]
    assert driver.done(p.Show) == [p.Show(CONNECTING)]
    driver.serve(1)
    assert driver.done(p.RetireSlot) == []
    assert driver.roles() == {0: Role.RETIRING, 1: Role.SERVING}


def test_replacements_start_initial_backoff_apart():
    """PO-3: a thousand requests make one replacement for each INITIAL_BACKOFF, and none of them is dropped."""
    driver, starts = serving(), []
    for _ in range(1000):
        driver.feed(p.Refresh("again"), 0.01)
        if driver.now >= driver.timer:
            driver.wake()
        for effect in driver.done(p.OpenSlot):
            starts.append(driver.now)
            driver.serve(effect.slot)
    assert 9 <= len(starts) <= 10
    assert all(later - earlier >= INITIAL for earlier, later in pairwise([100.0, *starts]))
    driver.feed(p.Refresh("again"), 0.01).wake()
    assert driver.done(p.OpenSlot), "the last request counts too"


def test_a_request_during_a_replacement():
    """PO-9: an attempt that began before the request may have gone to the old place, so another replacement follows."""
    driver = serving().feed(p.Refresh("moved"), 10).feed(p.SlotChanged(1, CONNECTING))
    driver.feed(p.Refresh("moved again"))
    assert driver.done(p.OpenSlot) == [], "one replacement at a time"
    driver.serve(1)
    assert driver.timer == driver.now + INITIAL
    assert driver.wake().done(p.OpenSlot) == [p.OpenSlot(2, "", 1)]


@pytest.mark.parametrize("state", [IDLE, FAILING])
def test_nothing_to_replace(state):
    """PO-9: without a connection or an attempt, a request changes nothing."""
    driver = Driver().feed(ConnectionWanted()).feed(p.SlotChanged(0, state)).feed(p.Refresh("moved"))
    assert driver.effects == []
    assert driver.serve(0, 0.01).timer == math.inf


@pytest.mark.parametrize("state", [CONNECTING, FAILING])
@pytest.mark.parametrize("began_before", [True, False])
def test_a_request_during_an_attempt(state, began_before):
    """PO-9, PO-10: an attempt in backoff counts, too; one that begins after the request is not replaced."""
    driver = Driver().feed(ConnectionWanted()).feed(p.SlotChanged(0, state)).feed(p.Refresh("moved"), 1)
    driver.feed(p.SlotChanged(0, READY), 5).feed(p.SlotServes(0, 100.5 if began_before else 101.5))
    assert driver.done(p.OpenSlot) == ([p.OpenSlot(1, "", 0)] if began_before else [])
    assert driver.timer == math.inf


# Condemning (PO-2).


def test_a_condemned_slot():
    """PO-2: new calls do not use a condemned connection; its calls end, and another slot is opened."""
    driver = serving().feed(p.Condemned(0, "no answer"), 10)
    assert driver.effects[:4] == [
        p.Serving(()),
        p.Show(CONNECTING),
        p.OpenSlot(1, ""),
        driver.effects[3],
    ]
    assert driver.done(p.CondemnSlot) == [p.CondemnSlot(0, "no answer")]
    assert driver.done(p.WantSlot) == [p.WantSlot(1)]
    assert driver.told == [("SlotOpened", 1, ""), ("SlotCondemned", 0, "")]
    assert driver.feed(p.SlotEnded(0)).done(p.CloseSlot) == [p.CloseSlot(0)]


def test_a_condemned_slot_with_a_replacement():
    """PO-2, PO-3: a replacement that is on its way takes the place of a condemned slot."""
    driver = serving().feed(p.Refresh("moved"), 10).feed(p.Condemned(0, "no answer"))
    assert driver.done(p.OpenSlot) == []
    assert driver.serve(1).done(p.RetireSlot) == []
    assert driver.roles() == {0: Role.CONDEMNED, 1: Role.SERVING}


def test_a_retiring_slot_may_be_condemned():
    """PO-2: so its calls end too, and nothing is opened in its place."""
    driver = serving().feed(p.Refresh("moved"), 10).serve(1).feed(p.Condemned(0, "no answer"))
    assert driver.done(p.OpenSlot, p.CondemnSlot) == [p.CondemnSlot(0, "no answer")]


# Health (RO-1).


def unhealthy(after=10.0, **policy):
    """Return a pool whose only connection is to a server that is no longer serving."""
    return serving(**policy).feed(p.HealthChanged(0, "NOT_SERVING"), after)


def test_an_unhealthy_server():
    """RO-1: new calls do not use its connection and wait for a replacement; the replacement takes its place."""
    driver = unhealthy()
    assert [each for each in driver.effects if not isinstance(each, Emit)] == [
        p.Serving(()),
        p.Show(CONNECTING),
        p.OpenSlot(1, "", 0),
        p.WantSlot(1),
    ]
    assert driver.roles() == {0: Role.UNHEALTHY, 1: Role.COMING}
    driver.serve(1, 0.1)
    assert driver.roles() == {0: Role.RETIRING, 1: Role.SERVING}
    assert driver.told[0] == ("SlotUnhealthy", 0, "")


def test_nothing_serves():
    """RO-1: once the replacement has failed too, the channel shows TRANSIENT_FAILURE and fails the calls."""
    driver = unhealthy().feed(p.SlotChanged(1, FAILING))
    assert driver.done(p.Show) == [p.Show(FAILING)]
    assert driver.feed(p.SlotFailed(1)).effects == [FailCalls()]
    driver.feed(p.SlotChanged(1, IDLE))
    assert driver.state.state is FAILING


def test_a_server_that_serves_again():
    """RO-1: the connection takes calls again at once, whatever its replacement does."""
    driver = unhealthy().feed(p.SlotChanged(1, FAILING)).feed(p.HealthChanged(0, ""))
    assert driver.effects == [p.Serving(((0,),)), p.Show(READY), driver.effects[2], ReleaseCalls()]
    assert driver.told[-1] == ("SlotServing", 0, "")
    assert driver.feed(p.SlotFailed(1)).effects == []
    driver.feed(p.HealthChanged(0, "NOT_SERVING"))
    assert driver.done(p.Show, p.OpenSlot, FailCalls) == [p.Show(FAILING), FailCalls()], "it still has a replacement"


def test_a_young_connection_to_an_unhealthy_server():
    """RO-1, PO-3: the replacement starts INITIAL_BACKOFF after the connection; until then, calls wait."""
    driver = unhealthy(after=0.1)
    assert driver.done(p.OpenSlot) == []
    assert (driver.state.state, driver.timer) == (CONNECTING, pytest.approx(100.0 + INITIAL))
    assert driver.wake().done(p.OpenSlot, p.WantSlot) == [p.OpenSlot(1, "", 0), p.WantSlot(1)]


def test_a_server_that_serves_again_before_it_may_be_replaced():
    """RO-1: health that is good again is no cause to replace a connection; a request to replace it (PO-9) still is."""
    driver = unhealthy(after=0.1).feed(p.HealthChanged(0, ""), 0.1)
    assert (driver.timer, driver.wake().done(p.OpenSlot)) == (math.inf, [])
    driver = serving().feed(p.Refresh("moved"), 0.1).feed(p.HealthChanged(0, "NOT_SERVING"))
    driver.feed(p.HealthChanged(0, "")).wake()
    assert driver.done(p.OpenSlot) == [p.OpenSlot(1, "", 0)]
    assert [each.event.event().why for each in driver.done(Emit)] == ["moved"]


def test_flapping_health():
    """RO-1, PO-3: a server whose health changes a thousand times costs one replacement for each INITIAL_BACKOFF."""
    driver, starts = serving(), [100.0]
    for number in range(1000):
        slot = driver.state.serving[0][0] if driver.state.serving else driver.state.slots[-1].number
        driver.feed(p.HealthChanged(slot, "" if number % 2 else "NOT_SERVING"), 0.01)
        if driver.now >= driver.timer:
            driver.wake()
        for effect in driver.done(p.OpenSlot):
            starts.append(driver.now)
            driver.serve(effect.slot)
    assert 9 <= len(starts) <= 11
    assert all(later - earlier >= INITIAL for earlier, later in pairwise(starts))


def test_an_unhealthy_connection_that_ends():
    """RO-1: the replacement takes its place; without one yet, the slot itself seeks a connection (CB-7)."""
    driver = unhealthy().lose(0)
    assert driver.done(p.RetireSlot, p.OpenSlot) == [p.RetireSlot(0)]
    driver = unhealthy(after=0.1).lose(0)
    assert driver.done(p.RetireSlot, p.OpenSlot) == []
    assert (driver.roles(), driver.timer) == ({0: Role.COMING}, math.inf)


def test_an_unhealthy_connection_that_is_dead():
    """RO-1, PO-2: it is condemned like any other, and its replacement takes its place."""
    driver = unhealthy().feed(p.Condemned(0, "no answer"))
    assert driver.done(p.OpenSlot, p.CondemnSlot) == [p.CondemnSlot(0, "no answer")]
    driver = unhealthy(after=0.1).feed(p.Condemned(0, "no answer"))
    assert driver.done(p.OpenSlot) == [p.OpenSlot(1, "")]


@pytest.mark.parametrize("problem", ["", "NOT_SERVING"])
@pytest.mark.parametrize("number", [0, 7])
def test_what_is_known_of_its_health(number, problem):
    """RO-1: the health of a slot that does not serve changes nothing, and neither does health that is known."""
    driver = Driver().feed(ConnectionWanted()).feed(p.HealthChanged(number, problem))
    assert driver.effects == []
    assert serving().feed(p.HealthChanged(number, "")).effects == []


def test_one_unhealthy_address_beside_one_that_serves():
    """RO-1, PO-6: calls go to the other address, and the channel stays READY; the name is resolved again."""
    driver = round_robin("a", "b").serve(1).serve(2, 60).feed(p.HealthChanged(1, "NOT_SERVING"))
    assert driver.state.serving == ((2,),)
    assert driver.done(p.Show, FailCalls) == []
    assert driver.done(p.OpenSlot, p.Resolve) == [p.OpenSlot(3, "a", 1), p.Resolve()]
    driver.feed(p.NameResolved(("b",)))
    assert driver.done(p.RetireSlot) == [p.RetireSlot(1), p.RetireSlot(3)]


def test_an_unhealthy_connection_is_not_unneeded():
    """RO-1, PO-8: a connection that its server's health keeps calls from does not retire for want of calls."""
    driver = serving(max_connections=2, streams_per_connection=1).feed(p.PoolBusy((Load(0, 1),)), 10).serve(1)
    driver.feed(p.HealthChanged(0, "NOT_SERVING")).feed(p.HealthChanged(1, "NOT_SERVING"))
    for _ in range(3):
        driver.wake()
    assert driver.roles()[0] is Role.UNHEALTHY


# round_robin (PO-6) and names (PO-7).


def round_robin(*addresses, **policy):
    """Return a pool whose target has these addresses, none of which has been dialled."""
    driver = Driver(round_robin=True, **policy).feed(ConnectionWanted()).feed(p.SlotChanged(0, CONNECTING))
    return driver.feed(p.NameResolved(addresses), 0.1)


def test_a_slot_for_each_address():
    """PO-6: until the name is resolved one slot stands for the target; then there is one for each address."""
    driver = round_robin("a", "b", "a")
    assert driver.done(p.OpenSlot, p.WantSlot, p.RetireSlot) == [
        p.OpenSlot(1, "a"),
        p.WantSlot(1),
        p.OpenSlot(2, "b"),
        p.WantSlot(2),
        p.RetireSlot(0),
    ]
    assert driver.done(p.Show) == []
    assert ("SlotOpened", 1, "a") in driver.told


def test_addresses_in_the_target():
    """PO-6: a target that names addresses needs no resolution."""
    driver = Driver(("a", "b"), round_robin=True)
    assert [each for each in driver.effects if not isinstance(each, Emit)] == [p.OpenSlot(0, "a"), p.OpenSlot(1, "b")]
    driver.feed(ConnectionWanted()).serve(0).lose(0)
    assert driver.done(p.Resolve) == []


def test_each_address_seeks_a_connection():
    """PO-6, CB-14: a slot that has lost its connection seeks one while the channel is in use, and else rests."""
    driver = round_robin("a", "b").serve(1).serve(2)
    assert driver.lose(1, busy=True).done(p.WantSlot) == [p.WantSlot(1)]
    assert driver.lose(2, busy=False).done(p.WantSlot) == []


def test_one_that_fails_beside_one_that_serves():
    """PO-4, PO-6: calls wait or use the others; only if every address has failed, pending calls fail."""
    driver = round_robin("a", "b").feed(p.SlotChanged(1, FAILING))
    assert driver.feed(p.SlotFailed(1)).done(FailCalls) == []
    driver.feed(p.SlotChanged(2, FAILING))
    assert driver.feed(p.SlotFailed(2)).done(FailCalls) == [FailCalls()]
    driver.serve(2)
    assert driver.feed(p.SlotFailed(1)).done(FailCalls) == []


def test_addresses_come_and_go():
    """PO-7: new addresses get slots, and gone ones retire; what is left of the others does not change."""
    driver = round_robin("a", "b").serve(1).serve(2).lose(1)
    driver.feed(p.NameResolved(("b", "c")))
    assert driver.done(p.OpenSlot, p.RetireSlot) == [p.OpenSlot(3, "c"), p.RetireSlot(1)]
    assert driver.state.serving == ((2,),)


def test_a_resolution_without_addresses_changes_nothing():
    """PO-7: once addresses are known, a resolution that fails or is empty changes nothing."""
    driver = round_robin("a").serve(1, 60).lose(1)
    assert driver.done(p.Resolve) == [p.Resolve()]
    before = driver.state.slots
    assert driver.feed(p.NameResolved(())).effects == []
    assert driver.state.slots == before


def test_how_often_a_name_is_resolved():
    """PO-7: at once after a first loss, and else not more often than the interval."""
    driver, at = round_robin("a"), []
    for _ in range(240):
        driver.serve(1).lose(1, 0.5, busy=True)
        if driver.now >= driver.timer:
            driver.wake()
        if driver.done(p.Resolve):
            at.append(driver.now)
            driver.feed(p.NameResolved(()))
    assert at[0] - 100.0 < 1
    assert all(later - earlier >= 30 for earlier, later in pairwise(at))
    assert 3 <= len(at) <= 5


def test_one_resolution_at_a_time():
    """PO-7: while a resolution hangs, no other is begun."""
    driver = round_robin("a", resolve_every=2.0).serve(1)
    driver.wake()
    assert driver.done(p.Resolve)
    for _ in range(50):
        driver.serve(1, 10).lose(1, 10, busy=True)
        assert driver.done(p.Resolve) == []


def test_resolve_every():
    """PO-7: the name is resolved every `resolve_every` seconds while there is a connection."""
    driver, at = round_robin("a", resolve_every=2.0).serve(1), []
    for _ in range(5):
        driver.wake()
        at += [driver.now] * len(driver.done(p.Resolve))
        driver.feed(p.NameResolved(("a",)), 0.5)
    assert [later - earlier for earlier, later in pairwise(at)] == [2.0] * 4
    driver.lose(1).feed(p.NameResolved(()))
    assert driver.state.serving == ()


def test_one_connection_follows_its_name():
    """PO-7: one slot for the whole target is replaced if an address has gone that the name had when it connected."""
    driver = serving(resolve_every=2.0)
    assert driver.done(p.Resolve) == [p.Resolve()]
    driver.feed(p.NameResolved(("a", "b")))
    for more in (("b", "a"), ("a", "b", "c")):
        driver.wake()
        assert driver.done(p.Resolve) == [p.Resolve()]
        assert driver.feed(p.NameResolved(more)).done(p.OpenSlot) == []
    driver.wake()
    driver.feed(p.NameResolved(("b", "c")))
    assert driver.done(p.OpenSlot) == [p.OpenSlot(1, "", 0)]
    driver.serve(1).feed(p.NameResolved(("b", "c")))
    driver.wake()
    assert driver.feed(p.NameResolved(("b", "c"))).done(p.OpenSlot) == []


def failing(driver, slot=0):
    """Bring a slot into backoff."""
    return driver.feed(p.SlotChanged(slot, FAILING)).feed(p.SlotFailed(slot))


def test_resolve_every_in_backoff():
    """PO-7: the name is also resolved every `resolve_every` seconds while a slot is in backoff, and not while idle."""
    driver, at = failing(Driver(resolve_every=2.0).feed(ConnectionWanted())), []
    for _ in range(5):
        at += [driver.now] * len(driver.done(p.Resolve))
        driver.feed(p.NameResolved(()), 0.5)
        driver.wake()
    assert [later - earlier for earlier, later in pairwise(at)] == [2.0] * 3
    driver.feed(p.NameResolved(())).lose(0)
    driver.wake()
    driver.feed(p.NameResolved(()))
    assert driver.timer == math.inf, "CB-14: nothing is planned without a connection or a backoff"
    assert failing(Driver().feed(ConnectionWanted())).done(p.Resolve) == []


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        (None, ("a",), False),
        (("a",), ("a",), False),
        (("a", "b"), ("b",), False),
        (("a",), (), False),
        ((), ("a",), True),
        (("a",), ("b",), True),
        (("a",), ("a", "b"), True),
    ],
)
def test_what_news_a_name_has(before, after, news):
    """LV-4: an address that the last resolution did not find is news for a slot that is asleep in backoff."""
    driver = failing(Driver(resolve_every=2.0).feed(ConnectionWanted()))
    if before is not None:
        driver.feed(p.NameResolved(before))
        driver.wake()
    assert driver.state.resolving
    driver.feed(p.NameResolved(after))
    assert driver.done(p.TellSlot) == [p.TellSlot(0)] * news


def test_an_address_that_is_back():
    """LV-4: with round_robin, only the slot of an address that the name has again is notified."""
    driver = failing(failing(round_robin("a", "b", "c", resolve_every=2.0).serve(3), 1), 2)
    driver.wake()
    driver.feed(p.NameResolved(()), 0.5)
    assert driver.done(p.TellSlot, p.RetireSlot) == []
    driver.wake()
    driver.feed(p.NameResolved(("a", "b", "c")))
    assert driver.done(p.TellSlot) == [p.TellSlot(1), p.TellSlot(2)], "one that serves needs no news"
    driver.wake()
    assert driver.feed(p.NameResolved(("a", "b", "c"))).done(p.TellSlot) == []


# Several connections for one endpoint (PO-8).


def test_one_more_when_all_are_full():
    """PO-8: when every connection has as many calls as it may have, one more is opened, one attempt at a time."""
    driver = serving(max_connections=3, streams_per_connection=10)
    assert driver.feed(p.PoolBusy((Load(0, 9),))).done(p.OpenSlot) == []
    assert driver.feed(p.PoolBusy((Load(0, 10),))).done(p.OpenSlot, p.WantSlot) == [p.OpenSlot(1, ""), p.WantSlot(1)]
    assert driver.feed(p.PoolBusy((Load(0, 15),))).done(p.OpenSlot) == []
    driver.serve(1)
    assert driver.state.serving == ((0, 1),)
    assert driver.feed(p.PoolBusy((Load(0, 15), Load(1, 3)))).done(p.OpenSlot) == []
    driver.feed(p.PoolBusy((Load(0, 15), Load(1, 10)))).serve(2)
    assert driver.feed(p.PoolBusy((Load(0, 15), Load(1, 15), Load(2, 15)))).done(p.OpenSlot) == [], "no more than three"


def test_what_is_not_needed_retires():
    """PO-8: a connection without a call for 30 s, beyond what is needed, retires; the last one stays."""
    driver = serving(max_connections=3, streams_per_connection=10).feed(p.PoolBusy((Load(0, 10),))).serve(1)
    driver.wake(Load(0, 10, 100.0), Load(1, 1, 100.0))
    assert driver.done(p.RetireSlot) == []
    used = driver.timer - 1
    assert driver.wake(Load(0, 5, used), Load(1, 0, used)).done(p.RetireSlot) == []
    driver.wake(Load(0, 0, used), Load(1, 0, used))
    assert driver.done(p.RetireSlot) == [p.RetireSlot(1)]
    assert (driver.roles()[0], driver.timer) == (Role.SERVING, math.inf)


def test_one_of_several_is_lost():
    """PO-8: an additional connection that is lost is opened again when it is needed, and not before."""
    driver = serving(max_connections=2, streams_per_connection=1).feed(p.PoolBusy((Load(0, 1),))).serve(1)
    assert driver.lose(0, busy=True).done(p.RetireSlot, p.WantSlot) == [p.RetireSlot(0)]
    assert driver.state.serving == ((1,),)


def test_each_of_several_is_replaced():
    """PO-9: a request replaces every connection of the channel."""
    driver = serving(max_connections=2, streams_per_connection=1).feed(p.PoolBusy((Load(0, 1),))).serve(1)
    driver.feed(p.Refresh("moved"), 10)
    assert [effect.replaces for effect in driver.done(p.OpenSlot)] == [0, 1]


@pytest.mark.parametrize(("eager", "wanted"), [(True, [p.WantSlot(0)]), (False, [])])
def test_eager_with_several(eager, wanted):
    """CB-7: the channel's only connection is replaced at once if the channel is eager and in use."""
    driver = Driver(eager=eager, max_connections=2).feed(ConnectionWanted()).serve(0)
    assert driver.lose(0, busy=True).done(p.WantSlot) == wanted


# Connections that turn calls away (RT-15).


def turned_away(driver, slot, after=0.0, *, served=False, status=503, draw=0.5):
    """Report a call on a slot's connection that was turned away; without jitter, as this is the middle of a window."""
    return driver.feed(p.TurnedAway(slot, status, served, draw), after)


def test_a_draining_server():
    """RT-15: a connection that turns a retried call away is replaced beside the calls that run on it, once."""
    driver = turned_away(serving(), 0, 10, served=True)
    assert driver.done(p.OpenSlot, p.RetireSlot) == [p.OpenSlot(1, "", 0)]
    assert driver.done(Emit)[0].event.event().why == "a call was answered with HTTP status 503"
    assert turned_away(driver, 0, 0.1, served=True).effects == [], "one replacement at a time"
    assert driver.serve(1).done(p.RetireSlot) == [p.RetireSlot(0)]
    assert turned_away(driver, 0, 0.1, served=True).effects == [], "of a call that was late"
    assert driver.timer == math.inf


def test_a_dial_that_fails_for_a_draining_server():
    """RT-15: if the replacement cannot be made, the old connection goes on serving."""
    driver = turned_away(serving(), 0, 10, served=True).feed(p.SlotChanged(1, FAILING)).feed(p.SlotFailed(1))
    assert (driver.roles(), driver.state.serving) == ({0: Role.SERVING, 1: Role.COMING}, ((0,),))
    assert turned_away(driver, 0, 10, served=True).effects == [], "it backs off"


@pytest.mark.parametrize("served", [True, False])
def test_a_young_connection_is_turned_from(served):
    """RT-15, PO-3: INITIAL_BACKOFF lies between the starts of a connection and of its replacement."""
    driver = turned_away(serving(), 0, 0.3, served=served)
    assert (driver.done(p.OpenSlot), driver.timer) == ([], 101.0)
    assert turned_away(driver, 0, 0.3, served=served).done(p.OpenSlot) == []
    assert driver.wake(Load(0, 0, served=served)).done(p.OpenSlot) == [p.OpenSlot(1, "", 0)]


def starts(driver, count):
    """Turn every call away, ten times a second; return the gaps between the starts of this many connections."""
    begun, slot = [driver.now], driver.state.serving[0][0]
    while len(begun) < count:
        turned_away(driver, slot)
        if driver.timer <= driver.now + 0.1:
            driver.wake(Load(slot, 1))
        else:
            driver.now += 0.1
        if driver.done(p.OpenSlot):
            begun.append(driver.now)
            slot = driver.done(p.OpenSlot)[0].slot
            driver.serve(slot)
    return [later - earlier for earlier, later in pairwise(begun)]


def test_a_proxy_without_a_server():
    """RT-15: connections on which no call is answered follow each other as failing attempts do: 1 s, 1.6 s, ... 120 s.

    Once a call is answered, the series begins anew.
    """
    driver = serving()
    gaps = starts(driver, 15)
    assert gaps == pytest.approx([min(120.0, 1.6**n) for n in range(14)])
    last = driver.state.slots[-1].number
    turned_away(driver, last, 1)
    assert driver.done(p.OpenSlot) == []
    assert turned_away(driver, last, 1, served=True).done(p.OpenSlot) == [p.OpenSlot(last + 1, "", last)]
    driver.serve(last + 1)
    assert starts(driver, 4) == pytest.approx([1.0, 1.6, 2.56])


def test_jitter_between_those_that_turn_calls_away():
    """RT-15, CB-5: each gap after the first has jitter, so that a proxy's clients do not come together."""
    for draw, gap in ((0.0, 1.28), (0.999999, 1.92)):
        driver = turned_away(serving(), 0, 1).serve(1)
        turned_away(driver, 1, draw=draw)
        assert driver.timer == pytest.approx(driver.now + gap, abs=1e-3)


def test_a_connection_that_answers_after_all_stays():
    """RT-15: a connection that has answered a call before its replacement is due is not replaced."""
    driver = turned_away(serving(), 0, 1).serve(1)
    turned_away(driver, 1)
    assert driver.wake(Load(1, 0, served=True)).done(p.OpenSlot) == []
    assert driver.timer == math.inf
    assert turned_away(driver, 1, 10).done(p.OpenSlot) == [p.OpenSlot(2, "", 1)], "the series begins anew"


@pytest.mark.parametrize("given", [p.Refresh("moved"), p.HealthChanged(4, "NOT_SERVING")])
def test_other_reasons_do_not_wait_for_the_series(given):
    """RT-15, PO-3: a replacement for another reason starts INITIAL_BACKOFF after the connection."""
    driver = serving()
    starts(driver, 5)
    assert turned_away(driver, 4, 2).done(p.OpenSlot) == []
    assert driver.feed(given).done(p.OpenSlot) == [p.OpenSlot(5, "", 4)]


def test_a_lost_connection_that_had_turned_calls_away():
    """RT-15: if the connection ends before its replacement is due, nothing but its own successor is made."""
    driver = turned_away(serving(), 0, 0.3).lose(0, busy=True)
    assert driver.timer == math.inf
    assert turned_away(driver, 0).effects == []


# The end, and the table.


def test_close():
    """PO-12: everything is closed, the serving slot last, and nothing happens after that."""
    driver = serving(resolve_every=2.0).feed(p.Refresh("moved"), 10).serve(1).feed(p.Refresh("moved"), 10)
    assert driver.roles() == {0: Role.RETIRING, 1: Role.SERVING, 2: Role.COMING}
    driver.feed(CloseRequested())
    assert driver.done(p.CloseSlot) == [p.CloseSlot(0), p.CloseSlot(2), p.CloseSlot(1)]
    assert driver.timer == math.inf
    for given in (p.SlotEnded(0), p.Refresh("moved"), p.SlotServes(2, 1.0), p.NameResolved(("a",)), p.PoolTimerFired()):
        assert driver.feed(given).effects == []


def test_what_is_not_in_the_table():
    """PO-1: every input is in the table, in every phase; nothing else is one."""
    with pytest.raises(IllegalTransition, match="str in phase UNWANTED"):
        Driver().feed("a")
    assert len(TRANSITIONS) == 3 * 13


# Idleness (CB-14).


def test_an_idle_channel_rests():
    """CB-14: all connections are closed once no call has used any for the idle timeout."""
    driver = round_robin("a", "b")
    driver.machine = driver.machine._replace(connect=replace(CONNECT, idle_timeout=10.0))
    driver.serve(1).serve(2, 3)
    began = driver.now - 3
    assert driver.timer == began + 10
    driver.now, driver.timer = began + 10, math.inf
    driver.feed(p.PoolTimerFired(used=began + 4))
    assert (driver.timer, driver.done(p.RestSlot)) == (began + 14, [])
    driver.now = began + 14
    driver.feed(p.PoolTimerFired(used=began + 14))
    assert driver.timer == began + 24, "a call is running"
    driver.now, driver.timer = began + 24, math.inf
    driver.feed(p.PoolTimerFired(used=began + 14))
    assert (driver.timer, driver.done(p.RestSlot)) == (math.inf, [p.RestSlot(1), p.RestSlot(2)])
    assert driver.lose(1).lose(2).done(p.WantSlot) == []
    assert driver.serve(1).timer == driver.now + 10, "it is watched again"


# What callers see between the effects of a step (PO-4).


def test_a_lost_connection_beside_one_that_fails():
    """PO-4: while the slot of a lost connection is asked to dial, the channel is not in TRANSIENT_FAILURE."""
    driver = round_robin("a", "b").serve(1).feed(p.SlotChanged(2, FAILING)).lose(1, busy=True)
    assert driver.effects[:2] == [p.Serving(()), p.Show(CONNECTING)]
    assert driver.done(p.WantSlot) == [p.WantSlot(1)]
    assert driver.state.state is CONNECTING


def test_all_are_asked_before_one_fails():
    """PO-4: when all slots are asked for connections, one that is in backoff at once does not hide the others' hope."""
    driver = Driver(("a", "b"), round_robin=True).feed(ConnectionWanted())
    assert driver.done(p.WantSlot) == [p.WantSlot(0), p.WantSlot(1)]
    assert driver.feed(p.SlotChanged(0, FAILING)).feed(p.SlotFailed(0)).done(FailCalls, p.Show) == []
    driver.feed(p.SlotChanged(0, IDLE)).feed(p.SlotChanged(1, IDLE)).feed(ConnectionWanted())
    assert driver.done(p.Show, p.WantSlot) == [p.Show(CONNECTING), p.WantSlot(0), p.WantSlot(1)]
    assert driver.feed(p.SlotChanged(1, FAILING)).feed(p.SlotFailed(1)).done(FailCalls, p.Show) == []


@pytest.mark.parametrize("kind", [p.SlotChanged, p.SlotServes, p.SlotFailed, p.SlotEnded, p.Condemned])
def test_news_of_a_slot_that_is_gone(kind):
    """PO-2: what a slot reports after its end changes nothing."""
    arguments = {p.SlotChanged: (7, READY), p.SlotServes: (7, 1.0), p.Condemned: (7, "dead")}.get(kind, (7,))
    assert serving().feed(kind(*arguments)).effects == []


def test_every_event_is_made():
    """PO-11: the machine makes an event of each kind, with the slot, its endpoint and the cause."""
    driver = serving().feed(p.Refresh("moved"), 10).serve(1).feed(p.SlotEnded(0))
    driver.feed(p.HealthChanged(1, "NOT_SERVING")).feed(p.Condemned(1, "dead"))
    assert {name for name, _, _ in driver.told} == {
        kind.__name__ for kind in slot_events.SlotEvent.__subclasses__() if "Liveness" not in kind.__name__
    }


class Slots(RuleBasedStateMachine):
    """A day in the life of a pool: losses, failures, resolutions, requests and calls in any order."""

    POLICY = PoolPolicy(max_connections=3, streams_per_connection=2, resolve_every=60.0)
    ALLOWED = frozenset(
        {
            (Role.COMING, Role.SERVING),
            (Role.COMING, Role.RETIRING),
            (Role.SERVING, Role.COMING),
            (Role.SERVING, Role.RETIRING),
            (Role.SERVING, Role.CONDEMNED),
            (Role.SERVING, Role.UNHEALTHY),
            (Role.UNHEALTHY, Role.SERVING),
            (Role.UNHEALTHY, Role.COMING),
            (Role.UNHEALTHY, Role.RETIRING),
            (Role.UNHEALTHY, Role.CONDEMNED),
            (Role.RETIRING, Role.CONDEMNED),
        }
    )

    def __init__(self):
        super().__init__()
        self.machine = PoolMachine("target", self.POLICY, CONNECT, ChannelKey())
        self.now, self.timer, self.serving, self.shown = 0.0, math.inf, (), IDLE
        self.open, self.wanted, self.replaced = set(), set(), {}
        self.state, effects = self.machine.begin(self.now)
        self.execute(effects, self.state)

    def feed(self, given):
        before = self.state
        self.state, effects = self.machine.step(before, given, self.now)
        for slot in before.slots:
            after = self.state.slot(slot.number)
            if after is not None and after.role is not slot.role:
                assert (slot.role, after.role) in self.ALLOWED, "PO-2: a role never goes back"
        self.execute(effects, before)

    def execute(self, effects, before):  # noqa: C901 - one branch for each effect
        for effect in effects:
            match effect:
                case p.OpenSlot(slot, _, replaces):
                    assert slot not in self.open
                    self.open.add(slot)
                    if replaces is not None:
                        old = before.slot(replaces)
                        assert old.role in CONNECTED, "PO-3: what has no connection needs no replacement"
                        assert self.now >= old.started + INITIAL, "PO-3: starts are INITIAL_BACKOFF apart"
                case p.CloseSlot(slot):
                    self.open.remove(slot)
                case p.WantSlot(slot):
                    assert self.state.slot(slot).live
                case p.TellSlot(slot):
                    told = self.state.slot(slot)
                    assert slot in self.open
                    assert told.state is FAILING, "LV-4: only those in backoff are told"
                case p.Serving(groups):
                    self.serving = groups
                case p.Show(state):
                    self.shown = state
                case ArmTimer(at):
                    self.timer = at
                case CancelTimer():
                    self.timer = math.inf

    def some(self, data, *roles):
        numbers = [slot.number for slot in self.state.slots if slot.role in roles]
        return data.draw(st.sampled_from(numbers)) if numbers else None

    @precondition(lambda self: self.state.phase is PoolPhase.UNWANTED)
    @rule()
    def want(self):
        self.feed(ConnectionWanted())

    @rule(data=st.data())
    def connect(self, data):
        slot = self.some(data, Role.COMING)
        if slot is not None:
            for state in (CONNECTING, READY):
                self.feed(p.SlotChanged(slot, state))
            self.feed(p.SlotServes(slot, self.now))

    @rule(data=st.data())
    def fail(self, data):
        slot = self.some(data, Role.COMING)
        if slot is not None:
            self.feed(p.SlotChanged(slot, FAILING))
            self.feed(p.SlotFailed(slot))

    @rule(data=st.data(), busy=st.booleans(), state=st.sampled_from([IDLE, CONNECTING, FAILING]))
    def lose(self, data, busy, state):
        slot = self.some(data, *CONNECTED)
        if slot is not None:
            self.feed(p.SlotChanged(slot, state, busy))

    @rule(data=st.data(), problem=st.sampled_from(["", "NOT_SERVING"]))
    def health(self, data, problem):
        slot = self.some(data, *CONNECTED)
        if slot is not None:
            self.feed(p.HealthChanged(slot, problem))

    @rule(data=st.data())
    def end(self, data):
        slot = self.some(data, Role.RETIRING, Role.CONDEMNED)
        if slot is not None:
            self.feed(p.SlotEnded(slot))

    @rule(data=st.data(), served=st.booleans(), draw=st.floats(0, 0.999))
    def turn_away(self, data, served, draw):
        slot = self.some(data, *CONNECTED, Role.RETIRING)
        if slot is not None:
            self.feed(p.TurnedAway(slot, 502, served, draw))

    @rule(data=st.data())
    def condemn(self, data):
        slot = self.some(data, *CONNECTED, Role.RETIRING)
        if slot is not None:
            self.feed(p.Condemned(slot, "dead"))

    @rule()
    def refresh(self):
        served = bool(self.serving)
        self.feed(p.Refresh("moved"))
        assert bool(self.serving) == served, "PO-3: a replacement takes nothing away"

    @rule(addresses=st.lists(st.sampled_from("abcd"), max_size=4))
    def resolve(self, addresses):
        if self.state.resolving:
            self.feed(p.NameResolved(tuple(addresses)))

    @rule(calls=st.integers(0, 4))
    def call(self, calls):
        loads = tuple(Load(number, calls, self.now) for group in self.serving for number in group)
        if loads:
            self.feed(p.PoolBusy(loads))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 31.0, 3600.0, 86_400.0]))
    def wait(self, seconds):
        end = self.now + seconds
        for _ in range(10):  # a long sleep of the machine fires the timer once (CB-12)
            if self.timer > end:
                break
            self.now, self.timer = max(self.now, self.timer), math.inf
            self.feed(p.PoolTimerFired(tuple(Load(number, 0) for group in self.serving for number in group)))
        self.now = end

    @rule()
    def late(self):
        if self.timer <= self.now:
            self.timer = math.inf
            self.feed(p.PoolTimerFired())

    @invariant()
    def slots_are_as_told(self):
        assert self.open == {slot.number for slot in self.state.slots}
        assert self.serving == self.state.serving
        assert self.shown is self.state.state, "PO-4"

    @invariant()
    def there_is_a_slot_for_each_endpoint(self):
        live = self.state.live
        assert live
        for endpoint in {slot.endpoint for slot in live}:
            own = [slot for slot in self.state.of(endpoint) if slot.replaces is None]
            assert 1 <= len(own) <= self.POLICY.max_connections

    @invariant()
    def one_replacement_at_a_time(self):
        replaced = [slot.replaces for slot in self.state.slots if slot.replaces is not None]
        assert len(replaced) == len(set(replaced)), "PO-3"
        for number in replaced:
            assert self.state.slot(number).role in CONNECTED

    @invariant()
    def what_is_due_has_a_timer(self):
        assert self.timer == self.state.armed
        waiting = [slot for slot in self.state.slots if slot.due and slot.role in CONNECTED]
        if any(self.state.replacement(slot.number) is None for slot in waiting):
            assert self.timer < math.inf


class Addresses(Slots):
    """The same with a slot for each address."""

    POLICY = PoolPolicy(max_connections=2, streams_per_connection=2, resolve_every=60.0, round_robin=True)

    @rule(addresses=st.lists(st.sampled_from("abcd"), min_size=1, max_size=4))
    def attempt_resolves(self, addresses):
        if self.state.addresses is None:
            self.feed(p.NameResolved(tuple(addresses)))

    @invariant()
    def each_address_has_a_slot(self):
        if self.state.addresses is not None:
            assert {slot.endpoint for slot in self.state.live} == set(self.state.addresses)


TestSlots = Slots.TestCase
TestAddresses = Addresses.TestCase
