"""C. The island: directories that are copied into a Hermes home. Nothing of ours imports them."""
