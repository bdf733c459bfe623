"""The connector's doors: gateways over WebSocket, files and policies over HTTP."""
