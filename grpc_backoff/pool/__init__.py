"""Which connections a channel has, and who takes the next call: decisions only, without clock, socket or grpc.

Internal: programs import from `grpc_backoff`.
"""
