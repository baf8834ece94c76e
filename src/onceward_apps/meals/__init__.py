"""Meals: a subscription whose customers get one QR code per service day, and redeem it once."""
