"""The judgement of a call: from its name to a verdict. Nothing that runs it."""
