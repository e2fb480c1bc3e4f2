"""Whether two code objects mean the same.  Knows instructions, but nothing of how source is made of them."""
