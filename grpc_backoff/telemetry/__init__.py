"""Listeners that tell the outside what a channel's connection does."""
