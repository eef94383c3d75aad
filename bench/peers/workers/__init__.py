"""One program for each peer: a worker, and how to publish its tasks."""
