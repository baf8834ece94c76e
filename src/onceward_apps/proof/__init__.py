"""Proof of safety: a batch gets its QR code, its label and its email, and customers see its lab results."""
