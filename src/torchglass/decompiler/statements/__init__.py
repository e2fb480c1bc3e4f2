"""An executed graph in, nested statements out: if, while, for, try, with, match, or a state machine."""
