"""The peer that makes its calls on this project's asyncio channel."""
