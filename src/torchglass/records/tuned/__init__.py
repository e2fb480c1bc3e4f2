"""Numbers that were found by measuring: a dataclass for each stage and kind of target, each with what was measured."""
