"""What concerns the whole process, not one compile: its ``locks`` and forks, signals (``interrupts``), the cyclic
``collector``, ``warning_filters``, and the log that says what runs eagerly (``fallbacks``). Imports no torch.
"""
