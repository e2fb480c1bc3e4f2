"""The interpreter of bytecode: the machine, its frames, one handler for each opcode."""
