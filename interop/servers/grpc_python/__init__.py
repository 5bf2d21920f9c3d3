"""A server built on grpcio."""
