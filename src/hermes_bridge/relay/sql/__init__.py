"""The relay's tables: migrations and statements."""
