"""The state of one session and its input and result. No workflow code."""
