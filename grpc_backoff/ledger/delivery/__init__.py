"""What a process does that delivers: claims, attempts, their records, and upkeep.

Internal: programs import from `grpc_backoff.ledger`.
"""
