"""`holdfast.toml` and the environment: reading, checking and trusting them. Nothing that acts on a setting."""
