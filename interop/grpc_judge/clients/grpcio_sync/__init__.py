"""The client of grpcio's threaded channel."""
