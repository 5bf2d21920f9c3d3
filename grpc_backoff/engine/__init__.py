"""Executes the decisions, for both APIs: channels, methods, calls, pools and the schedules that they share.

Internal: programs import from `grpc_backoff`.
"""
