"""Alerts: rules over tenants' metrics, one alert per condition and day, one decision card per alert, each told once."""
