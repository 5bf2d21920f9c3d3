"""A ledger's transactions: functions that take a `Store`, each of which is complete when it returns.

If one raises a `LedgerError`, the error says what happened to the data.

Internal: programs import from `grpc_backoff.ledger`.
"""
