"""Methods of C types on symbolic values, one file per kind. Importing this package fills the table."""

from . import dicts, lists, objects, sets

__all__ = ["dicts", "lists", "objects", "sets"]
