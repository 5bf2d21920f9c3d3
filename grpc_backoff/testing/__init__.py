"""For testing what is built on this library: a clock in hand, a connector with a script, a front that fails."""
