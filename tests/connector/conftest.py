"""Hypothesis for the connector's machines: enough to find, short enough to run at every commit."""

from hypothesis import settings

settings.register_profile("connector", max_examples=50, deadline=None)
settings.load_profile("connector")
