"""Values from outside: tracked, and guarded."""
