"""ConnectWithBackoff as a pure state machine, with the protocols of its clock and of the connectors that dial.

Internal, but for `clock` and `connector`: programs import from `grpc_backoff`.
"""
