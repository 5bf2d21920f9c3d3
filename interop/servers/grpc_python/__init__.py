"""A server of grpcio's."""
