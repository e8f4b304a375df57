"""Documents of the web: which addresses are open, and pages as text."""
