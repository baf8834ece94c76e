"""Health-file intake."""
