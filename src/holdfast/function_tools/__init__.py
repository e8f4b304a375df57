"""`@tool`: Python functions as tools. No registry and no gate."""
