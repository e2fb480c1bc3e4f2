"""Entries that outlive the process: kept in a folder as texts, JSON and libraries, and found by later processes.

    miss ─ key ─ candidates in the folder ─ guards built from table.json, checked ─ entry run        restore.py
    compile ─ entry ─ what it is made of, where all of it can be written down ─ folder               keep.py

Nothing is pickled, and a hit runs no stage and imports none. What an entry relies on is looked at again: guards are
checked for the call, and each object that they hold to be the same is found again by its path and compared with the
description that was kept of it (``objects.py``), code by its digest.
"""
