"""Code that the suite's commands share: manifests, builds, processes and terminal output."""
