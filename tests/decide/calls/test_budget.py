"""A retry budget's tokens: the arithmetic of gRFC A6, and which channels share them."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff import aio
from grpc_backoff.decide.calls import budget
from grpc_backoff.decide.calls.budget import RetryTokens, tokens_of
from grpc_backoff.engine.environment import CallEnvironment
from grpc_backoff.policy.budget import RetryBudget
from tests.policy.values import unhurried


def failures_until_spent(tokens):
    """Count the failures in a row that use up the budget."""
    count = 0
    while not tokens.spent:
        tokens.failed()
        count += 1
    return count


@pytest.mark.parametrize(
    ("max_tokens", "failures"),
    [(1000, 500), (100, 50), (10, 5), (9, 5), (5, 3), (4, 2), (3, 2), (2.002, 2), (2, 1), (1, 1), (0.5, 1), (1e-5, 0)],
)
def test_threshold(max_tokens, failures):
    """RT-9: calls are retried only while more than half of the tokens are left; exactly half is not enough."""
    tokens = RetryTokens(RetryBudget(max_tokens, 1))

    assert tokens.left == pytest.approx(max_tokens, abs=1e-3)
    assert failures_until_spent(tokens) == failures


@pytest.mark.parametrize(
    ("ratio", "refund"),
    [
        (0.001, 1),
        (0.0015, 1),
        (0.0019, 1),
        (0.1, 100),
        (1.001, 1001),
        (1.003, 1003),
        (0.29, 290),
        (0.57, 570),
        (7, 7000),
    ],
)
def test_thousandths(ratio, refund):
    """RT-9: `token_ratio` is truncated to thousandths, as in gRPC's cores, and every exact thousandth is kept."""
    tokens = RetryTokens(RetryBudget(1000, ratio))
    for _ in range(20):
        tokens.failed()
    tokens.succeeded()

    assert round(tokens.left * 1000) == 980_000 + refund


def test_every_thousandth():
    """RT-9: floating-point errors lose no thousandth of a token, although 1.001 * 1000 is less than 1001."""
    for thousandths in range(1, 1_000_001, 7):
        tokens = RetryTokens(RetryBudget(thousandths / 1000, thousandths / 1000))
        assert (tokens._most, tokens._refund) == (thousandths, thousandths)


class Model:
    """The throttling of gRFC A6 in exact arithmetic."""

    def __init__(self, max_tokens, token_ratio):
        self.most = self.left = Fraction(max_tokens)
        self.ratio = Fraction(int(Fraction(token_ratio) * 1000), 1000)

    def failed(self):
        self.left = max(Fraction(0), self.left - 1)

    def succeeded(self):
        self.left = min(self.most, self.left + self.ratio)

    @property
    def spent(self):
        return not self.left > self.most / 2


@unhurried
@given(
    max_tokens=st.integers(1, 1_000_000).map(lambda number: Decimal(number) / 1000),
    token_ratio=st.integers(100, 1_000_000).map(lambda number: Decimal(number) / 100_000),
    outcomes=st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=30),
)
def test_as_the_model(max_tokens, token_ratio, outcomes):
    """RT-9: after any series of failures and successes, the number of tokens equals that in exact arithmetic.

    A failure costs one token, down to zero; a success returns `token_ratio`, up to `max_tokens`.
    """
    tokens, model = RetryTokens(RetryBudget(float(max_tokens), float(token_ratio))), Model(max_tokens, token_ratio)
    for failure, times in outcomes:
        for _ in range(times):
            for each in (tokens, model):
                each.failed() if failure else each.succeeded()
        assert (round(tokens.left * 1000), tokens.spent) == (model.left * 1000, model.spent)
        assert 0 <= tokens.left <= float(max_tokens)


@unhurried
@given(outcomes=st.lists(st.booleans(), max_size=200), ratio=st.sampled_from([0.001, 0.1, 0.5, 1.0]))
def test_retries_are_bounded(outcomes, ratio):
    """RT-9: the number of retries is always below half of the tokens plus the tokens that successes returned."""
    tokens = RetryTokens(RetryBudget(20, ratio))
    retries = 0
    for failure in outcomes:
        if failure:
            tokens.failed()
            retries += not tokens.spent
        else:
            tokens.succeeded()

    assert retries < 10 + ratio * outcomes.count(False)


# Sharing.

BUDGET = RetryBudget(10, 0.1)


def test_one_target():
    """RT-9: channels with the same target and the same budget share tokens."""
    tokens = tokens_of("a:1", BUDGET)

    assert tokens_of("a:1", RetryBudget(10.0, 0.1)) is tokens
    assert tokens_of("b:1", BUDGET) is not tokens
    assert tokens_of("a:1", RetryBudget(10, 0.2)) is not tokens
    assert tokens_of("a:1", RetryBudget(11, 0.1)) is not tokens


def test_two_threads(monkeypatch):
    """RT-9: two threads that make the first channels to a target at the same time share tokens."""

    class Slow(RetryTokens):
        __slots__ = ()

        def __init__(self, *parts):
            time.sleep(0.1)
            super().__init__(*parts)

    monkeypatch.setattr(budget, "RetryTokens", Slow)
    lock = threading.Lock()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: tokens_of("threads:1", BUDGET, lambda: lock), range(2))
    assert first is second


def test_forgotten():
    """RT-9: the tokens are forgotten when their last user is gone; a later user starts with a full budget."""
    first, second = tokens_of("forgotten:1", BUDGET), tokens_of("forgotten:1", BUDGET)
    first.failed()
    del first
    gc.collect()

    assert tokens_of("forgotten:1", BUDGET).left == second.left == 9.0
    del second
    gc.collect()
    assert tokens_of("forgotten:1", BUDGET).left == 10.0


async def test_a_new_channel():
    """RT-9: a new channel gets the tokens that are left for its target, or all of them if it is the first channel."""
    async with aio.insecure_channel("localhost:3", retry="standard", retry_budget=BUDGET) as channel:
        channel.calls.tokens.failed()
        async with aio.insecure_channel("localhost:3", retry="standard", retry_budget=BUDGET) as another:
            assert another.calls.tokens.left == 9.0
    del channel, another
    gc.collect()

    assert tokens_of("localhost:3", BUDGET).left == 10.0


async def test_channels():
    """RT-9: channels to one target share tokens even if their policies differ; each target has its own tokens."""
    async with (
        aio.insecure_channel("localhost:1", retry="standard", retry_budget=BUDGET) as one,
        aio.insecure_channel("localhost:1", retry={"a.B": "steps"}, retry_budget=BUDGET) as same,
        aio.insecure_channel("localhost:2", retry="standard", retry_budget=BUDGET) as other,
        aio.insecure_channel("localhost:1", retry="standard") as without,
    ):
        assert one.calls.tokens is same.calls.tokens is tokens_of("localhost:1", BUDGET)
        assert other.calls.tokens is tokens_of("localhost:2", BUDGET)
        assert without.calls.tokens is None


async def test_threads_take_turns():
    """RT-9: channels of several threads or event loops count a target's tokens under one lock."""
    async with aio.insecure_channel("localhost:4", retry="standard", retry_budget=BUDGET) as channel:
        tokens = channel.calls.tokens
        thread = threading.Thread(target=tokens.failed)
        with CallEnvironment._counting:
            thread.start()
            thread.join(0.05)
            assert tokens.left == 10.0
        thread.join(20)
        assert tokens.left == 9.0
