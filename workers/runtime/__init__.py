"""What every process needs: connection, logs, health, data folder, children. No command and no screen."""
