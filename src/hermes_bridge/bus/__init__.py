"""Process-to-process messages. Knows no payload."""
