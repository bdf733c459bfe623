"""For backends in Python that receive the callbacks of the http_callback plugin."""
