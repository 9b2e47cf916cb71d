"""The list of stores for assistants, over the Model Context Protocol (extra `mcp`)."""
