"""Hermes' relay contract as pure records: what the connector speaks with gateways."""
