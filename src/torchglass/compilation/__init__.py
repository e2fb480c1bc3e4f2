"""How a graph is compiled, below ``graph_pipeline``: the stages of a side in order (``side_pipeline``), what its sides
have in common (``job``), what equal graphs share (``graph_sharing``), and when stages ran (``timing``).
"""
