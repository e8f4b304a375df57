"""Commands under a supervisor: a process that outlives the worker and records how they ended (S31, S17). No tool.

Two sides meet in the folder of a run. The supervisor (`main`, `supervisor`, `watch_child`, `child`) starts the command,
keeps its output and its end, and ends its whole tree when it is told to, when time is up or when no worker comes back.
The worker (`runs`, `supervised_run`, `launch`) starts it or finds it again. `run_folder`, `run_request`,
`working_directory` and `proc` are shared. `sandbox` closes a command in with bubblewrap; `placement` keeps a supervisor
alive under systemd.

The supervisor's side imports little and nothing but the standard library: it is started once per command.

Why: docs/decisions/0009-commands-run-under-a-supervisor.md.
"""
