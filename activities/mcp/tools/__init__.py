"""Tools, resources and prompts of a connected server as tools of the registry. Nothing that connects."""
