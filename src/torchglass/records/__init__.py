"""What stages hand on: frozen dataclasses with no behaviour beyond rendering. Imports nothing of ours."""
