"""What PyTorch's functions mean: nodes of the graph, and what is computed while capturing."""
