"""What programs say of their own functions (``markers``) and tensors (``tensors``): read by capture and the runtime."""
