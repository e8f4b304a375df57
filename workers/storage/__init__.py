"""What histories need of what is stored outside, and removing the rest. Nothing that prints."""
