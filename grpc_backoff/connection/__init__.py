"""ConnectWithBackoff: a pure state machine, the asyncio shell that drives it, and the connectors that dial."""
