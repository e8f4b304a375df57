"""What people see and type in a terminal. No command of the command line."""
