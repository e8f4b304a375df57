"""One request to a model of any provider, and its reply. No tools, and no turn but the one that asks."""
