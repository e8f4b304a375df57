"""Web pages as text, and connections that go only where rules allow. Nothing about single tools."""
