"""What every room may use: errors that load no grpc, records, the loop that drives machines, threads, and forks.

Internal: programs import from `grpc_backoff`.
"""
