"""RapidOCR asked about the page before it is asked about its lines.

The engine turns single lines that it takes for upside down, reads them, and then gives the places of their words the
wrong way round; and now and then it turns one that was upright.  A page, though, is upright or not as a whole: the
lines vote on it, between finding them and reading them, and a page that lies otherwise is turned and begun again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from rapidocr import RapidOCR


class Turned(Exception):
    """The page is turned clockwise by so many quarters."""

    def __init__(self, turns: int) -> None:
        super().__init__(turns)
        self.turns = turns


class Engine(RapidOCR):
    """Finds lines, lets them vote, reads them."""

    def upright(self, picture: Any, *, believed: bool) -> Any:
        """Read a picture.  Raises Turned when it is not upright, unless it is believed to be."""
        self._believed = believed
        self._sideways = False
        return self(picture, return_word_box=True)

    def detect_and_crop(self, *args: Any) -> Any:
        crops, found = super().detect_and_crop(*args)
        if found.boxes is not None:
            sides = [_sides(box) for box in found.boxes]
            # Short words are as high as wide; the long ones know.
            tall = sum(height for width, height in sides if height > 2 * width)
            wide = sum(width for width, height in sides if width > 2 * height)
            self._sideways = tall > wide
        return crops, found

    def cls_and_rotate(self, crops: list[Any]) -> Any:
        _, found = super().cls_and_rotate(crops)
        if self._believed:
            return crops, found
        votes = 0.0
        for crop, (label, score) in zip(crops, found.cls_res or (), strict=True):
            height, width = crop.shape[:2]
            if width > 2 * height:
                votes += width * float(score) * (1 if "180" in label else -1)
        turns = int(self._sideways) + 2 * (votes > 0)
        if turns:
            raise Turned(turns)
        return crops, found


def _sides(box: Any) -> tuple[float, float]:
    points = np.asarray(box, dtype=float)
    width, height = points.max(axis=0) - points.min(axis=0)
    return float(width), float(height)
