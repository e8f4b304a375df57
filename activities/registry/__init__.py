"""The tools of one worker: where they come from, and how their arguments are checked. No verdict."""
