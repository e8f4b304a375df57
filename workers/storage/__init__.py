"""What histories need of what is stored outside them, and removing the rest. Nothing that prints."""
