"""Basic blocks and their dominators: the control-flow graph of simplified instructions."""
