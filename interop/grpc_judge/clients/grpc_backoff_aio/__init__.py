"""The client of this project's asyncio channel."""
