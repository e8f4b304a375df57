"""Files of the workspace: opened, walked, compared. No tool and no policy."""
