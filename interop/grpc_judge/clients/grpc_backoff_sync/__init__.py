"""The client of this project's threaded channel."""
