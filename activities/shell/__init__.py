"""Shell commands, analysed without running them: what a command would run, and what is known of that. No rules."""
