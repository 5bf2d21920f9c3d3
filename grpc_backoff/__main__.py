"""`python -m grpc_backoff`: the command line."""

from __future__ import annotations

from grpc_backoff.cli import main

if __name__ == "__main__":
    main()
