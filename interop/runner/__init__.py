"""What every run of the suite needs, whatever client it judges: manifests, builds, processes and views."""
