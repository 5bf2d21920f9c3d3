"""What the ledger is measured and held to: `python -m benchmarks.ledger --help`."""
