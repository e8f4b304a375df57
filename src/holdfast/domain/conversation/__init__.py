"""The messages of users, models and tools, and how they are compacted. No call to a model."""
