"""`holdfast up`: the embedded Temporal server, a worker and the gateway as child processes. No command of the command
line.
"""
