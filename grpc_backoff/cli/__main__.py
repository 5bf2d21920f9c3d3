"""`python -m grpc_backoff.cli` runs the command `grpc-backoff`."""

from __future__ import annotations

from grpc_backoff.cli import main

if __name__ == "__main__":
    main()
