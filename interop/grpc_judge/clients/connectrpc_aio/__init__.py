"""The peer that makes its calls with connectrpc (ConnectRPC for Python), over the gRPC protocol."""
