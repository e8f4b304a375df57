"""A tool call and a batch of them: states, transitions, verdicts, order. Nothing of a conversation."""
