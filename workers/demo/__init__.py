"""`holdfast demo`: a turn that survives three killed workers. No command of the command line."""
