"""What concerns the whole process, not one compile: its ``locks`` and forks, signals (``interrupts``), the cyclic
``collector``, ``warning_filters``, and the log that says what runs eagerly (``fallbacks``); ``tables`` that decorators
fill. Imports no torch.
"""
