"""The server: uvicorn's protocols with limits and direct ways in. Knows no door."""
