"""The grammar of bash: words, redirections, commands. Nothing about single programs."""
