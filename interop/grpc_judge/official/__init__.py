"""gRPC's official reconnect interop test (IO-1): its client, its server, and a comparison with gRPC's own programs.

A client calls `grpc.testing.ReconnectService/Start` on the control port and then keeps dialling the retry port, which
accepts each connection and hangs up. Finally the client calls `Stop`, and the server's answer says whether the gaps
conform to the connection backoff.
"""
