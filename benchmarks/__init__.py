"""Measurements side by side with plain grpcio, in one run. Nothing here is a test, and no number here is asserted."""
