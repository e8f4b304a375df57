"""Files of the workspace: opened beneath it, walked, matched, compared."""
