"""What a model and a user say to each other, and how it is compacted. No call to a model."""
