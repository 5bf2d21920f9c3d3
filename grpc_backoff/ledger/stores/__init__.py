"""A ledger's databases: they run transactions, and decide nothing. An inbox uses some of their modules.

Internal: programs import from `grpc_backoff.ledger`.
"""
