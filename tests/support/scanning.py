"""What a scanner reads in a picture."""

from __future__ import annotations

from typing import Any

import zxingcpp

# Whoever looks for codes of all kinds at once sees, in one of some thousand QR codes, a few of its lines as an ITF code.
_QR = zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode)


def qr_codes(image: Any) -> list[zxingcpp.Barcode]:
    """Every QR code in it, with its text and its place."""
    return zxingcpp.read_barcodes(image, formats=_QR)
