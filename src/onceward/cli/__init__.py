"""The command line: one file per noun, over the same calls as the clients."""
