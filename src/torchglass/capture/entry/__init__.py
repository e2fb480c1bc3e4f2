"""The entry: the source text that runs the graph, rebuilds values, replays effects, and goes on after breaks."""
