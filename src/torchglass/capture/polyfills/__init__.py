"""What C functions do, as Python that the machine interprets.  Imports nothing of ours: it is user code."""
