"""What several of the systems use: their schemas' installation, QR codes, tokens."""
