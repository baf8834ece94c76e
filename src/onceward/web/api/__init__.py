"""What programs ask over HTTP.  Health is here; `/api/v1` has its place under Mount("/api", …) in app.py."""
