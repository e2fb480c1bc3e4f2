"""What ``python -m torchglass`` does with programs and folders, one module for each subcommand."""
