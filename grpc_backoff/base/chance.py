"""The default source of jitter: the operating system's, which has no state that a fork could copy (CB-11).

Importing the standard library's `random`, which has the same, takes as long as importing ten modules of this library.

Internal: programs import from `grpc_backoff`.
"""

from os import urandom

_BITS = 53  # as many as a float has


class SystemChance:
    """Draws each number from the operating system's source of randomness."""

    def random(self) -> float:
        """Return a random number, uniformly distributed in [0, 1)."""
        return (int.from_bytes(urandom(8), "big") >> (64 - _BITS)) / (1 << _BITS)


CHANCE = SystemChance()
