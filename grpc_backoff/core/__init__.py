"""What grpcio's core does with one channel: one dial, one connection, and its end. Pure: it uses no grpc, no clock.

Internal: programs import from `grpc_backoff`.
"""
