"""What asyncio and threaded channels have in common: their set-up, their methods, and how their calls fail.

Internal: programs import from `grpc_backoff`.
"""
