"""Puts a plugin into a bot's Hermes home, takes it out again, and explains a bot that is not online.

Knows files, not sockets: what is written is planned first, shown on request, and then written whole
or not at all. The command line (`cli/install.py`) asks the relay whether address and token are
right.
"""
