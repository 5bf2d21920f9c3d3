"""gRPC's ConnectWithBackoff as a pure state machine, and the interfaces for its clock and its connectors.

Internal, except for `clock` and `connector`: programs import from `grpc_backoff`.
"""
