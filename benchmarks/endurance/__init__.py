"""What must not be left over, and must not hang, however often it is done: channels, event loops, forks."""
