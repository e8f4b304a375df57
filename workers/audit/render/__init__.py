"""A timeline as text for a terminal and as a page with a drawing. Nothing that reads histories."""
