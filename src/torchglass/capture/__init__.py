"""The frontend: bytecode and real arguments in, a ``records.capture.Capture`` out. Objects of the user are only read."""
