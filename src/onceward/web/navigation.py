"""The navigation: what everybody needs first, then the engine, then a group for each application."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.web.sections import Link, Section

# Where each page of ours stands.  Others come through sections.
DAILY: tuple[Link, ...] = (
    Link("/", "Overview", key="o"),
    Link("/jobs", "Jobs", key="j"),
    Link("/dead-letters", "Dead letters", count="dead_letters", key="d"),
    Link("/alerts", "Alerts", count="alerts", key="a"),
)
ENGINE: tuple[Link, ...] = (
    Link("/lanes", "Lanes", key="l"),
    Link("/limits", "Limits", key="i"),
    Link("/schedules", "Schedules", key="s"),
    Link("/deliveries", "Deliveries", count="uncertain", key="e"),
    Link("/workers", "Workers", key="w"),
    Link("/monitors", "Monitors", key="m"),
    Link("/audit", "Audit", key="u"),
    Link("/doctor", "Doctor", key="h"),
)
# Pages that belong to an entry, and lie elsewhere.
UNDER = {"/channels": "/monitors", "/retention": "/audit", "/new-lane": "/lanes"}
# So many applications are shown with all their pages; of more, only the one that is looked at.
ALL_OPEN = 2


@dataclass(frozen=True, slots=True)
class Group:
    """Entries under one heading; without a title, without one."""

    name: str
    title: str
    links: Sequence[Link]
    is_open: bool


@dataclass(frozen=True, slots=True)
class Navigation:
    groups: Sequence[Group]
    # The entry that the page belongs to; None for one that stands nowhere.
    current: Link | None


def navigation(path: str, sections: Sequence[Section]) -> Navigation:
    shown = [section for section in sections if section.links]
    current = current_of(path, [*DAILY, *ENGINE, *(link for section in shown for link in section.links)])
    return Navigation(
        [
            Group("daily", "", DAILY, is_open=True),
            Group("engine", "Engine", ENGINE, is_open=True),
            *(
                Group(
                    f"section-{section.name}",
                    section.title,
                    section.links,
                    is_open=len(shown) <= ALL_OPEN or current in section.links,
                )
                for section in shown
            ),
        ],
        current,
    )


def current_of(path: str, links: Sequence[Link]) -> Link | None:
    """The entry whose path the page lies under; of several, the longest."""
    first = "/" + path.split("/", 2)[1]
    path = UNDER.get(first, path)
    found = [
        link
        for link in links
        if path == link.path or (link.path != "/" and path.startswith(link.path.rstrip("/") + "/"))
    ]
    return max(found, key=lambda link: len(link.path), default=None)
