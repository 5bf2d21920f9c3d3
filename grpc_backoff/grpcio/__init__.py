"""The private parts of grpcio that both APIs use; the errors that are grpc's own; forks; the poller.

Internal: programs import from `grpc_backoff`.
"""
