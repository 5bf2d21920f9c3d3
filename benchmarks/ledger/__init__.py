"""Measurements and stress tests of the ledger: `python -m benchmarks.ledger --help`."""
