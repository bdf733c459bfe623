"""The connector's rules: pure, synchronous, told what happened."""
