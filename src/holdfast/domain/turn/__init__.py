"""The state of one turn, its input, result, views and messages. No workflow code."""
