"""What rules look at: the subject of a call, and the programs of its command. No rules."""
