"""What people look at: it reads records and the artifact folder, and takes no part in a compile."""
