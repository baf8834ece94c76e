"""Health-file intake: from an uploaded photograph to facts with their place, and a time line."""
