"""`holdfast demo`: a run that survives a killed worker. No command of the command line."""
