"""What the channels of both faces have in common: how they are set up, their methods, and how their calls fail.

Internal: programs import from `grpc_backoff`.
"""
