"""Settings, from the environment.  The names are those of the contract where it has one."""

from __future__ import annotations

import os
import secrets as random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal, cast

from onceward.errors import InvalidArgument
from onceward_apps.kit.storage import Storage

RendererName = Literal["typst", "browserless"]
BUCKET = "proof-assets"
SENDER = "production@protocolraw.co.uk"
# Where emails are files in a folder, nobody is written to by mistake.
NOBODY = "co-packer@example.com"
BROWSERLESS = "https://production-sfo.browserless.io"
PUBLIC = ("qr-codes/",)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the proof system needs to know of the world around it."""

    storage: Storage
    copacker_email: str
    sender: str = SENDER
    renderer: RendererName = "typst"
    browserless_url: str = BROWSERLESS
    browserless_key: str = field(default="", repr=False)
    fonts: tuple[Path, ...] = ()
    # How long the co-packer's link opens the label.
    link_lasts: timedelta = timedelta(days=30)
    # Webhooks by channel; without one, alerts of that channel are only logged.
    slack: Mapping[str, str] = field(default_factory=dict, repr=False)
    worker_secret: str = field(default="", repr=False)
    # The name under which customers find the public pages; without one, only under their path.
    public_host: str = ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """
        COPACKER_EMAIL              who gets the labels; required where emails leave the machine
        PROOF_EMAIL_FROM            the sender
        PROOF_STORAGE_URL           file:///folder, s3://…, gs://…, az://…; by default a folder in ONCEWARD_HOME
        PROOF_ASSETS_URL            where the world finds those files
        PROOF_LINK_SECRETS          secrets that sign links, the newest first, separated by commas
        PROOF_RENDERER              typst or browserless; with BROWSERLESS_URL and BROWSERLESS_API_KEY
        PROOF_FONTS                 a folder with Montserrat
        PROOF_HOST                  the host name of the public pages, as proof.protocolraw.co.uk
        PROOF_WORKER_SECRET         of the routes process-proof-jobs and run-monitor
        SLACK_OPS_ALERTS_WEBHOOK    SLACK_OPS_URGENT_WEBHOOK
        """
        copacker = environ.get("COPACKER_EMAIL", "")
        if not copacker and environ.get("ONCEWARD_EMAIL", "").partition(":")[0] in {"", "outbox"}:
            copacker = NOBODY
        if not copacker:
            raise InvalidArgument(
                "COPACKER_EMAIL is not set", hint="Name the address that gets the label artwork."
            )
        renderer = environ.get("PROOF_RENDERER", "typst")
        if renderer not in {"typst", "browserless"}:
            raise InvalidArgument(f"PROOF_RENDERER must be typst or browserless, got {renderer!r:.40}")
        key = environ.get("BROWSERLESS_API_KEY", "")
        if renderer == "browserless" and not key:
            raise InvalidArgument(
                "BROWSERLESS_API_KEY is not set", hint="Set it, or use PROOF_RENDERER=typst."
            )
        hooks = {
            "ops-alerts": environ.get("SLACK_OPS_ALERTS_WEBHOOK"),
            "ops-urgent": environ.get("SLACK_OPS_URGENT_WEBHOOK"),
        }
        return cls(
            storage=storage_from(environ),
            copacker_email=copacker,
            sender=environ.get("PROOF_EMAIL_FROM", SENDER),
            renderer=cast("RendererName", renderer),
            browserless_url=environ.get("BROWSERLESS_URL", BROWSERLESS),
            browserless_key=key,
            fonts=tuple(
                Path(folder) for folder in environ.get("PROOF_FONTS", "").split(os.pathsep) if folder
            ),
            slack={channel: url for channel, url in hooks.items() if url},
            worker_secret=environ.get("PROOF_WORKER_SECRET", ""),
            public_host=environ.get("PROOF_HOST", "").strip().lower(),
        )


def storage_from(environ: Mapping[str, str]) -> Storage:
    home = Path(environ.get("ONCEWARD_HOME") or Path.home() / ".local/share/onceward")
    url = environ.get("PROOF_STORAGE_URL") or (home / BUCKET).absolute().as_uri()
    given = [part.strip() for part in environ.get("PROOF_LINK_SECRETS", "").split(",") if part.strip()]
    if any(len(secret) < 32 for secret in given):
        raise InvalidArgument(
            "PROOF_LINK_SECRETS must each be at least 32 characters",
            hint="Make one with: openssl rand -hex 32",
        )
    if not given and not url.startswith("file:"):
        raise InvalidArgument(
            "PROOF_LINK_SECRETS is not set",
            hint="Links to labels are signed with it. Make one with: openssl rand -hex 32",
        )
    return Storage(
        url=url,
        base_url=environ.get("PROOF_ASSETS_URL", f"http://localhost:{environ.get('PORT') or 8080}/{BUCKET}"),
        secrets=[secret.encode() for secret in given] or [_own_secret(home)],
        public=PUBLIC,
    )


def _own_secret(home: Path) -> bytes:
    """On one machine, a secret that is made once and kept beside the files."""
    place = home / "proof-link-secret"
    home.mkdir(parents=True, exist_ok=True)
    try:
        with open(place, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(random.token_hex(32))
    except FileExistsError:
        pass
    return place.read_text().strip().encode()
