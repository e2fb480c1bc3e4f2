"""Backends by name, and torchglass as a backend of torch.compile. See ``registry`` and ``torch_compile``."""
