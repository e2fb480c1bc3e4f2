"""Backends by name (``registry``), torchglass as one of torch.compile's (``torch_compile``), and in its place
(``installing``).
"""
