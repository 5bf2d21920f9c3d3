"""Retrying calls: what to do after a failure, decided by pure functions that every face of the library shares."""
