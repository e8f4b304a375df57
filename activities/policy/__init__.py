"""The policy: rules in files that say which calls proceed, which are asked about, which are denied (S29)."""
