"""Checks that large numbers of channels, event loops and forks leave nothing behind and do not hang."""
