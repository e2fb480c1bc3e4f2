"""What runs what the stages made: files loaded and compiled, guards checked, graphs called, artifacts stored."""
