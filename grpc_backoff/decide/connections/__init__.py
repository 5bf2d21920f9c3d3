"""Decides when to dial, which connections a channel has, and who takes the next call.

Internal: programs import from `grpc_backoff`.
"""
