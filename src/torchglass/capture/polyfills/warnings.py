"""Who is shown a log record or a warning, as Python that the machine interprets: what it reads is relied on."""

# mypy: ignore-errors

from __future__ import annotations


def is_enabled_for(logger, level, manager):
    return not logger.disabled and manager.disable < level and level >= logger.getEffectiveLevel()


def action(text, category, module, line, filters, otherwise):
    """What the first of the filters of warnings that fits says; None where it asks for a place that is not known."""
    for found, message, kind, place, at in filters:
        if fits(message, text) and issubclass(category, kind):
            if module is None and (place is not None or at != 0):
                return None
            if fits(place, module) and at in (0, line):
                return found
    return otherwise


def fits(pattern, text):
    return pattern is None or (pattern == text if isinstance(pattern, str) else pattern.match(text) is not None)
