"""One plugin for client, worker and replayer: it puts activities, workflows and payloads together. No command line."""
