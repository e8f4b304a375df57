"""A timeline as text, page and drawing. Nothing that reads histories."""
