"""The server half of gRPC's official reconnect interop test (IO-1); the client half is `interop/client.py`.

A client calls `grpc.testing.ReconnectService/Start` on the control port, keeps dialling the retry port, which accepts
and hangs up, and then calls `Stop`, whose answer says whether its gaps conform to the connection backoff.
"""
