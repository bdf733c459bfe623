"""Where the relay faces sockets and requests."""
