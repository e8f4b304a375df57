"""How payloads are converted, encrypted and stored outside a history. Nothing about their meaning."""
