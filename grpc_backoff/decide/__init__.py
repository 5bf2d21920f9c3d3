"""Every decision, pure: what happens comes in as inputs, and what to do goes out as effects.

Internal: programs import from `grpc_backoff`.
"""
