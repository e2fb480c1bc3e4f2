"""What the two pipelines have in common: the time of stages, and what graphs of the same content share."""
