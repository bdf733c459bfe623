"""SQL plumbing: connections, batches, migrations. Knows no table."""
