"""Methods of C types on symbolic values, one file per kind. Importing this package fills the table."""

from . import dicts, lists, objects, sets, strings

__all__ = ["dicts", "lists", "objects", "sets", "strings"]
