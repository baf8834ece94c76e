"""What follows from an event of Stripe, in the transaction that notes the event."""

from __future__ import annotations

from onceward import OncewardError
from onceward.deliveries.content import parse_address
from onceward_apps.kit import tokens
from onceward_apps.meals import outside, store
from onceward_apps.meals.messages import Messages
from onceward_apps.meals.outside import StripeEvent, Unusable
from onceward_apps.meals.store import Connection

SUBSCRIPTION_EVENTS = frozenset({
    "customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted",
})  # fmt: skip


def apply_event(connection: Connection, messages: Messages, event: StripeEvent) -> str:
    """applied, ignored, invalid or duplicate.

    An event that cannot be used is noted and not refused: Stripe would repeat it for days, and it would be no better.  It is in
    the view meals.stripe_trouble until somebody has looked.
    """
    if event.type not in {"checkout.session.completed", "invoice.payment_failed", *SUBSCRIPTION_EVENTS}:
        return (
            "ignored" if store.note_stripe_event(connection, event.id, event.type, "ignored") else "duplicate"
        )
    try:
        if event.type == "checkout.session.completed":
            return _checked_out(connection, messages, event)
        if event.type == "invoice.payment_failed":
            return _payment_failed(connection, messages, event)
        return _subscription_changed(connection, event)
    except Unusable as error:
        new = store.note_stripe_event(connection, event.id, event.type, "invalid", str(error))
        return "invalid" if new else "duplicate"


def _checked_out(connection: Connection, messages: Messages, event: StripeEvent) -> str:
    checkout = outside.checkout_of(event)
    try:
        email, _ = parse_address("email", checkout.email)
    except OncewardError:
        raise Unusable("email is not an address") from None
    if not store.note_stripe_event(connection, event.id, event.type):
        return "duplicate"
    customer = store.register_customer(
        connection, checkout.stripe_customer_id, email=email, name=checkout.name, handle=checkout.handle
    )
    store.set_subscription(connection, checkout.stripe_subscription_id, "active", event.created, customer.id)
    deep, correction = tokens.new(), tokens.new()
    store.add_deep_link_token(connection, customer.id, deep.digest)
    store.add_handle_update_token(connection, customer.id, correction.digest)
    messages.welcome(
        connection,
        customer,
        event_id=event.id,
        handle=checkout.handle,
        deep=deep.text,
        correction=correction.text,
    )
    return "applied"


def _payment_failed(connection: Connection, messages: Messages, event: StripeEvent) -> str:
    stripe_id = event.text("customer")
    if stripe_id is None:
        raise Unusable("customer missing")
    customer = store.customer_of_stripe(connection, stripe_id)
    if customer is None:
        # The first payment of a checkout that was never completed.
        return (
            "ignored" if store.note_stripe_event(connection, event.id, event.type, "ignored") else "duplicate"
        )
    if not store.note_stripe_event(connection, event.id, event.type):
        return "duplicate"
    messages.dunning(connection, customer, event_id=event.id)
    return "applied"


def _subscription_changed(connection: Connection, event: StripeEvent) -> str:
    stripe_id, status = event.text("id"), event.text("status")
    if event.type == "customer.subscription.deleted":
        status = "canceled"
    if stripe_id is None or status not in outside.STATUSES:
        raise Unusable("id missing" if stripe_id is None else "status is not known")
    if not store.note_stripe_event(connection, event.id, event.type):
        return "duplicate"
    buyer = event.text("customer")
    customer = store.customer_of_stripe(connection, buyer) if buyer else None
    store.set_subscription(connection, stripe_id, status, event.created, customer.id if customer else None)
    return "applied"
