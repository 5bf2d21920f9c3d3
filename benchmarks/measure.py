"""The statistics of the benchmarks: turns, ratios and their confidence intervals.

The subjects take turns in small blocks, in a random order that is drawn for every round; a fixed order would favour a
subject that follows itself. If the machine becomes slower or faster, it does so for all of them. Each round yields the
ratio of each subject to the baseline of the same round. The result is the median of these ratios, with the interval
that contains 95 % of the medians of resampled rounds. The control, which is the baseline measured a second time, shows
how far the ratio of two equal subjects can be from 1.

If the subjects have no rounds in common, the result is the ratio of their medians, and each is resampled independently.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from benchmarks.benchmark import Interval, Measure, Row

__all__ = ["by_itself", "by_round", "ratio_by_round", "ratio_of_medians", "rows", "turns"]

RESAMPLES = 2000
SEED = 1

Samples = Sequence[float]
Compare = Callable[[Samples, Samples], Interval]


def turns(subjects: Sequence[str], rounds: int, seed: int = SEED) -> Iterator[str]:
    """Yield every subject once per round, in a random order that differs between rounds."""
    rng = random.Random(seed)
    for _ in range(rounds):
        yield from rng.sample(subjects, k=len(subjects))


def ratio_by_round(own: Samples, base: Samples) -> Interval:
    """Return the median of the ratios of all rounds, with its interval."""
    ratios = np.divide(own, base)
    return _interval(np.median(ratios), _resampled_medians(ratios, np.random.default_rng(SEED)))


def ratio_of_medians(own: Samples, base: Samples) -> Interval:
    """Return the ratio of the medians of unrelated samples, with its interval."""
    rng = np.random.default_rng(SEED)
    resampled = _resampled_medians(np.asarray(own), rng) / _resampled_medians(np.asarray(base), rng)
    return _interval(np.median(own) / np.median(base), resampled)


def _resampled_medians(samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.integers(len(samples), size=(RESAMPLES, len(samples)))
    return np.median(samples[drawn], axis=1)


def _interval(value: float, resampled: np.ndarray) -> Interval:
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Interval(float(value), float(low), float(high))


def by_round(case: str, measure: Measure, samples: Mapping[str, Samples], baseline: str | None) -> list[Row]:
    """Return rows for subjects that took turns: samples with the same index belong to the same round."""
    return rows(case, measure, samples, baseline, ratio_by_round)


def by_itself(case: str, measure: Measure, samples: Mapping[str, Samples], baseline: str | None = None) -> list[Row]:
    """Return rows for subjects whose samples have no rounds in common."""
    return rows(case, measure, samples, baseline, ratio_of_medians)


def rows(
    case: str, measure: Measure, samples: Mapping[str, Samples], baseline: str | None, compare: Compare
) -> list[Row]:
    """Return a row for each subject, with its ratio to the baseline unless it is the baseline itself."""
    return [
        Row(
            case=case,
            measure=measure,
            subject=subject,
            samples=tuple(map(float, own)),
            ratio=None if baseline in (None, subject) else compare(own, samples[baseline]),
        )
        for subject, own in samples.items()
    ]
