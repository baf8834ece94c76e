"""What sources may reach, from the environment: a tenant's settings name things, and this decides what they get.

ALERTS_SYNC_FILES       the folder under which files are read, in a folder per tenant; without it, `alerts` beside the embedded
                        server's data, see ONCEWARD_HOME
ALERTS_SYNC_SECRET_…    secrets that settings may name, by what follows the prefix: nothing else of the environment
ALERTS_SYNC_HTTP        "allow" lets sources be read over plain http, as in tests; else https only
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onceward.embedded import default_data_dir
from onceward_apps.alerts.sync.model import Misconfigured

PREFIX = "ALERTS_SYNC_SECRET_"


@dataclass(frozen=True, slots=True)
class Access:
    files: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    plain_http: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Access:
        folder = environ.get("ALERTS_SYNC_FILES")
        return cls(
            files=Path(folder) if folder else default_data_dir().parent / "alerts",
            secrets={
                name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX)
            },
            plain_http=environ.get("ALERTS_SYNC_HTTP") == "allow",
        )

    def secret(self, name: str) -> str:
        try:
            return self.secrets[name]
        except KeyError:
            raise Misconfigured(
                f'secret "{name}" is not set', hint=f"Set {PREFIX}{name} where the workers run."
            ) from None

    def matching(self, tenant: str, pattern: str) -> list[Path]:
        """The files of the tenant that a name with * and ? means, in the order of their names."""
        folder = (self.files / tenant).resolve()
        if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise Misconfigured(
                f"path must be a name below the tenant's folder, got {pattern!r:.200}",
                hint="Write it like orders-*.csv.",
            )
        # A link may lead out of the folder.
        return sorted(
            path for path in folder.glob(pattern) if path.is_file() and path.resolve().is_relative_to(folder)
        )
