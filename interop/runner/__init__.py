"""What all commands of the suite share: manifests, builds, processes and terminal output."""
