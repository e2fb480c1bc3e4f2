"""What programs ask of all compiled functions at once: a ``stance``, said to us or to torch.compile (``following``)."""
