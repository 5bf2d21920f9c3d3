"""Decides when to dial, which connections a channel has, and who takes the next call."""
