"""A server that is built on grpcio."""
