"""What the system needs to know, from the environment.  Secrets show themselves in no representation."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parseaddr
from pathlib import Path

from cryptography.fernet import Fernet

from onceward.embedded import default_data_dir

NEEDED = (
    "MEALS_QR_KEYS",
    "MEALS_SEAL_KEYS",
    "STRIPE_WEBHOOK_SECRET",
    "TELEGRAM_WEBHOOK_SECRET",
    "CRON_SECRET",
)

SENDER = "Frontier Meals <meals@frontiermeals.com>"


@dataclass(frozen=True, slots=True)
class Settings:
    # Where the pages are, without a slash at the end.
    base_url: str
    # The Telegram bot, without @.
    bot: str
    # Sign QR codes: see QrKeys.parse.
    qr_keys: str = field(repr=False)
    # Seal messages: Fernet keys; the first seals, all open.
    seal_keys: tuple[str, ...] = field(repr=False)
    stripe_secret: str = field(repr=False)
    telegram_secret: str = field(repr=False)
    cron_secret: str = field(repr=False)
    # Name of each kiosk → its secret.
    kiosks: Mapping[str, str] = field(repr=False)
    # Who writes to customers.
    sender: str = SENDER
    # The Telegram chat that hears of alerts and of abandoned emails.
    ops_chat: str | None = None
    # With keys of this machine, for looking around: nobody depends on it.
    is_first_look: bool = False

    def __post_init__(self) -> None:
        secret = {
            "STRIPE_WEBHOOK_SECRET": self.stripe_secret,
            "TELEGRAM_WEBHOOK_SECRET": self.telegram_secret,
            "CRON_SECRET": self.cron_secret,
            **{f"secret of kiosk {name}": value for name, value in self.kiosks.items()},
        }
        short = [name for name, value in secret.items() if len(value) < 16]
        if short:
            raise ValueError(f"{short[0]} must be at least 16 characters")
        if len(set(self.kiosks.values())) < len(self.kiosks):
            raise ValueError("every kiosk needs a secret of its own")
        if "@" not in parseaddr(self.sender)[1]:
            raise ValueError(f"MEALS_EMAIL_FROM must be an address like {SENDER!r}, got {self.sender!r}")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Raises ValueError that names what is missing.

        With none of them, this is a first look on one machine: keys are made once and kept in a file of its own.
        """
        is_first_look = not any(environ.get(name) for name in NEEDED)
        if is_first_look:
            here = f"http://localhost:{environ.get('PORT') or 8080}"
            environ = {"MEALS_BASE_URL": here, **own_keys(), **environ}
        missing = [name for name in NEEDED if not environ.get(name)]
        if missing:
            raise ValueError(
                f"not set: {', '.join(missing)}.  `python -m onceward_apps.meals keys` makes new ones."
            )
        pairs = [
            part.strip().partition("=") for part in environ.get("MEALS_KIOSKS", "").split(",") if part.strip()
        ]
        return cls(
            base_url=environ.get("MEALS_BASE_URL", "https://frontiermeals.com").rstrip("/"),
            bot=environ.get("MEALS_BOT", "frontiermealsbot"),
            qr_keys=environ["MEALS_QR_KEYS"],
            seal_keys=tuple(key.strip() for key in environ["MEALS_SEAL_KEYS"].split(",")),
            stripe_secret=environ["STRIPE_WEBHOOK_SECRET"],
            telegram_secret=environ["TELEGRAM_WEBHOOK_SECRET"],
            cron_secret=environ["CRON_SECRET"],
            kiosks={name: secret for name, _, secret in pairs},
            sender=environ.get("MEALS_EMAIL_FROM") or SENDER,
            ops_chat=environ.get("MEALS_OPS_CHAT") or None,
            is_first_look=is_first_look,
        )


def new_keys(counters: int = 1) -> dict[str, str]:
    """Fresh secrets for an environment, all but Stripe's, which Stripe makes."""
    return {
        "MEALS_QR_KEYS": f"k1=eddsa:{base64.b64encode(secrets.token_bytes(32)).decode()}",
        "MEALS_SEAL_KEYS": Fernet.generate_key().decode(),
        "TELEGRAM_WEBHOOK_SECRET": secrets.token_urlsafe(32),
        "CRON_SECRET": secrets.token_urlsafe(32),
        "MEALS_KIOSKS": ",".join(f"counter-{n + 1}={secrets.token_urlsafe(32)}" for n in range(counters)),
    }


def own_keys(folder: Path | None = None) -> dict[str, str]:
    """Keys of this machine, made by whichever process comes first; readable by this user only."""
    place = (folder or default_data_dir().parent) / "meals.keys"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        # Two counters: a code that is shown at both is taken at one.
        made = {**new_keys(counters=2), "STRIPE_WEBHOOK_SECRET": secrets.token_urlsafe(32)}
        # Whole before it has its name, and only the first one gets it: pages and workers start together.
        with tempfile.NamedTemporaryFile("w", dir=place.parent, prefix="meals.keys.") as file:
            file.write("".join(f"{name}={value}\n" for name, value in made.items()))
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, place)
    return dict(line.split("=", 1) for line in place.read_text().splitlines() if line)
