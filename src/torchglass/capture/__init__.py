"""The frontend: bytecode and real arguments in, a ``records.capture.Capture`` out. The user's objects are only read."""
