"""The rules of the relay: pure, synchronous, told what happened, answering with effects."""
