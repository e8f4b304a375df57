"""What an application uses to start, watch and decide turns and sessions. No worker code."""
