"""Commands under a supervisor: a process that outlives the worker and records how they ended (S31, S17). No tool.

Both sides meet in the folder of a run (`run_protocol`). The supervisor (`main`, `supervisor`, `watch_child`, `child`)
starts the command, keeps its output and its end, and ends its process tree: on request, at the time limit, or when no
worker attends any more. The worker starts it or finds it again (`launch`, `runs`), follows it (`supervised_run`,
`command_call`) and keeps background commands going (`attendant`). `sandbox` confines a command with bubblewrap.

The supervisor's side imports only the standard library, and little of it: one is started for each command.

Why: docs/decisions/0009-commands-run-under-a-supervisor.md.
"""
