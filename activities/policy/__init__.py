"""The policy: rules in files that allow, ask or deny, and saved grants (S29). Nothing that runs a call."""
