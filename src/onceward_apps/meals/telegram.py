"""What the bot answers, in the transaction that notes the update."""

from __future__ import annotations

from onceward_apps.kit import tokens
from onceward_apps.meals import store
from onceward_apps.meals.domain import QrToken
from onceward_apps.meals.messages import Messages, spoken
from onceward_apps.meals.outside import TelegramUpdate
from onceward_apps.meals.store import Connection

LINKING = {
    "LINKED": "Welcome, {name}! Your account is connected. Send /today to see the QR code of the day.",
    "ALREADY_LINKED": "Your account is connected already, {name}. Send /today to see the QR code of the day.",
    "ALREADY_USED": "This link has already been used. Open the correction link in your email to get a new one.",
    "EXPIRED": "This link has expired. Open the correction link in your email to get a new one.",
    "INVALID": "This link is not valid. Open the link in your email again.",
    "CHAT_TAKEN": "This chat is connected to another account already.",
}
HELP = "Send /today to see the QR code of the day. To connect your account, open the link in your email."


def answer_update(connection: Connection, messages: Messages, update: TelegramUpdate) -> str:
    """What became of it: duplicate, ignored, helped, or the outcome of the command."""
    if not store.note_telegram_update(connection, update.update_id):
        return "duplicate"
    if update.chat_id is None or not update.command:
        return "ignored"
    outcome, text, code = _answer(connection, update, update.chat_id)
    if code is None:
        messages.reply(connection, update.chat_id, text, update_id=update.update_id)
    else:
        messages.show_code(connection, update.chat_id, text, code, update_id=update.update_id)
    return outcome


def _answer(connection: Connection, update: TelegramUpdate, chat_id: int) -> tuple[str, str, QrToken | None]:
    """The outcome, what is said, and the code whose picture goes with it."""
    if update.command == "/start" and update.argument:
        outcome, name = store.link_telegram(connection, tokens.digest(update.argument), chat_id)
        return outcome, LINKING[outcome].format(name=name), None
    if update.command == "/today":
        return _today(connection, chat_id)
    return "helped", HELP, None


def _today(connection: Connection, chat_id: int) -> tuple[str, str, QrToken | None]:
    found = store.qr_of_chat(connection, chat_id)
    if found is None:
        return (
            "unknown_chat",
            "I do not know you yet. Open the link in your email to connect your account.",
            None,
        )
    if found.token is None:
        return "no_code", "You have no meal today, or your QR code is on its way.", None
    if found.used_at is not None:
        at = store.local_time(connection, found.used_at)
        return "used", f"Your meal of today was redeemed at {at}.", None
    return "shown", f"Your QR code for {spoken(found.token.service_date)}:", found.token
