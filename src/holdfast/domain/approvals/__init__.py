"""What waits for a person, what a person decides, who may, and what stands afterwards. Nothing that runs calls."""
