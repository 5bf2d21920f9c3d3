"""ConnectWithBackoff: a pure state machine, the asyncio shell that drives it, and the connectors that dial.

Internal, but for `clock` and `connector`: programs import from `grpc_backoff`.
"""
