"""Random policies that combine every strategy with every jitter."""

from __future__ import annotations

from hypothesis import strategies as st

from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.checks import STATUS_CODES
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps

TIMES = st.floats(0.001, 1e4)
MULTIPLIERS = st.floats(1.0, 20.0)
JITTERS = st.one_of(
    st.just(NoJitter()),
    st.builds(Proportional, st.floats(0, 0.99), st.booleans()),
    st.tuples(st.floats(0, 5), st.floats(0.01, 5)).map(lambda pair: Scaled(pair[0], pair[0] + pair[1])),
    st.builds(Additive, st.floats(0, 5)),
    st.just(Full()),
    st.just(Equal()),
)


@st.composite
def policies(draw):
    """Draw any policy that a file can describe."""
    base = draw(TIMES)
    cap = base + draw(st.floats(0, 1e5))
    strategy = draw(
        st.sampled_from(
            [
                Fixed(base),
                Linear(base),
                Exponential(base, draw(MULTIPLIERS), draw(st.none() | st.integers(0, 40))),
                Steps(tuple(draw(st.lists(TIMES, min_size=1, max_size=8))), draw(MULTIPLIERS)),
                Decorrelated(base),
            ]
        )
    )
    jitter = NoJitter() if isinstance(strategy, Decorrelated) else draw(JITTERS)
    return RetryPolicy(
        backoff=BackoffPolicy(strategy, cap, jitter),
        max_attempts=draw(st.none() | st.integers(1, 9)),
        codes=draw(st.frozensets(st.sampled_from(STATUS_CODES), min_size=1)),
        server_delay_jitter=draw(st.floats(0, 10)),
        max_server_delay=draw(st.none() | TIMES),
        timeout=draw(st.none() | TIMES),
        deadline=draw(st.none() | TIMES),
        never_ran_only=draw(st.booleans()),
    )


def random_jitter(rng, kind):
    """Return a random jitter of this kind; a test that goes through `JITTERS` fails for a kind that is missing here."""
    low = rng.choice([0.0, rng.uniform(0, 5)])
    return {
        NoJitter: NoJitter,
        Proportional: lambda: Proportional(rng.uniform(0, 0.99), rng.random() < 0.5),
        Scaled: lambda: Scaled(low, low + rng.uniform(0.01, 5)),
        Additive: lambda: Additive(rng.uniform(0, 5)),
        Full: Full,
        Equal: Equal,
    }[kind]()


def random_strategy(rng, kind, base):
    """Return a random strategy of this kind; as above for `STRATEGIES`."""
    multiplier = rng.choice([1.0, 1.6, 2.0, rng.uniform(1, 20)])
    return {
        Fixed: lambda: Fixed(base),
        Linear: lambda: Linear(base),
        Exponential: lambda: Exponential(base, multiplier, rng.choice([None, rng.randrange(40)])),
        Steps: lambda: Steps(tuple(10 ** rng.uniform(-3, 4) for _ in range(rng.randrange(1, 8))), multiplier),
        Decorrelated: lambda: Decorrelated(base),
    }[kind]()


def random_policy(rng, strategy, jitter):
    """Return a random policy with a strategy and a jitter of these kinds."""
    base = 10 ** rng.uniform(-3, 4)
    strategy, jitter = random_strategy(rng, strategy, base), random_jitter(rng, jitter)
    return RetryPolicy(
        backoff=BackoffPolicy(strategy, base + rng.choice([0.0, 10 ** rng.uniform(-2, 5)]), jitter),
        max_attempts=rng.choice([None, rng.randrange(1, 10)]),
        codes=frozenset(rng.sample(STATUS_CODES, rng.randrange(1, 12))),
        server_delay_jitter=rng.choice([0.0, rng.uniform(0, 10)]),
        max_server_delay=rng.choice([None, 10 ** rng.uniform(-1, 4)]),
        deadline=rng.choice([None, None, rng.uniform(1, 1000)]),
    )
