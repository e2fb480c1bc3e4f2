"""Methods of C types on symbolic values, one file per kind. Importing this package fills the table."""

from . import deques, dicts, lists, objects, sets, strings

__all__ = ["deques", "dicts", "lists", "objects", "sets", "strings"]
