"""Files that decide what runs, and which calls would change one of them. No rules of users."""
