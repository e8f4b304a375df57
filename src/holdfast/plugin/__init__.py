"""One plugin for client, worker and replayer: it composes activities, workflows and payloads. No command line."""
