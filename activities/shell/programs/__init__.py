"""Knowledge of single programs: options, wrappers, effects. No grammar."""
