"""Every private name of grpcio, for both APIs; the errors that are grpc's own; forks; the poller.

Internal: programs import from `grpc_backoff`.
"""
