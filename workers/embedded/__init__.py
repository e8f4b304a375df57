"""`holdfast up`: the embedded server and the processes beside it. No command of the command line."""
