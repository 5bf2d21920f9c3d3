"""The interfaces that a program may implement: the clock and the connectors of a channel.

Internal, except for `clock` and `connector`: programs import from `grpc_backoff`.
"""
