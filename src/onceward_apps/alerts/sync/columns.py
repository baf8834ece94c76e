"""The schema check: a column that vanished or changed its type is refused by name; a new one is reported."""

from __future__ import annotations

from onceward_apps.alerts.sync.model import Page, SchemaChanged, Source
from onceward_apps.alerts.sync.targets import Settings

HINT = (
    "Mend the source, or its settings.  If the change is right, accept it with "
    "\"select alerts.accept_columns('{id}')\" and retry."
)


def check_columns(source: Source, settings: Settings, page: Page) -> tuple[dict[str, str], list[str]]:
    """All columns that are known now, and the new ones.  Raises SchemaChanged.

    Rows that carry their columns with them may leave some out: there, only columns that are used are missed, and a page
    without rows tells nothing.
    """
    known = source.columns
    if not page.declared and not page.rows:
        return dict(known), []
    used = settings.used()
    vanished = [column for column in known if not _has(page, column) and (page.declared or column in used)]
    needed = {column for column, required in used.items() if required}
    if page.declared:
        needed |= settings.named()
    missing = sorted(column for column in needed - set(vanished) if not _has(page, column))
    if vanished or missing:
        names = ", ".join(f'"{column}"' for column in (*vanished, *missing))
        raise SchemaChanged(
            f'source "{source.name}" has no column {names}',
            detail=f"Its columns are {', '.join(sorted(page.columns)) or 'none'}.",
            hint=HINT.format(id=source.id),
        )
    merged = dict(known)
    for column, kind in page.columns.items():
        before = known.get(column, "null")
        if kind not in {before, "null"} and before not in {"null", "mixed"}:
            raise SchemaChanged(
                f'column "{column}" of source "{source.name}" was {before} and is {kind} now',
                detail="Nothing of its page was written.",
                hint=HINT.format(id=source.id),
            )
        merged[column] = before if before != "null" else kind
    return merged, sorted(set(page.columns) - set(known)) if known else []


def _has(page: Page, column: str) -> bool:
    if column in page.columns:
        return True
    # A source declares an object as a whole; what is looked up in it cannot be known beforehand.
    return page.declared and page.columns.get(column.partition(".")[0]) == "json"
