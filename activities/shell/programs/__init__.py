"""What is known of single programs: options, wrappers, effects. No grammar."""
