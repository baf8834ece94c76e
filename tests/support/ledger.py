"""The calls of the ledger of outside effects, for tests that speak nothing but SQL."""

from __future__ import annotations

MAIL = {"to": "jane@example.com", "subject": "Welcome", "text": "Hello Jane"}
OPS = {"kind": "slack", "content": {"to": "ops"}}


class Ledger:
    """One method per function."""

    def __init__(self, db):
        self.db = db

    def deliver(self, key="welcome:42", content=None, kind="email", **options):
        (row,) = self.db.call("deliver", kind=kind, key=key, content=content or MAIL, **options)
        return row

    def claim(self, worker="a"):
        return self.db.claim(worker=worker, lanes=["deliveries"])

    def begin(self, claim, provider="smtp"):
        (row,) = self.db.call("begin_delivery", job_id=claim.job_id, epoch=claim.epoch, provider=provider)
        return row

    def settle(self, claim, outcome, **options):
        (row,) = self.db.call(
            "settle_delivery", job_id=claim.job_id, epoch=claim.epoch, outcome=outcome, **options
        )
        return row

    def begun(self, worker="a", **options):
        """The claim of a new delivery that is being sent."""
        self.deliver(**options)
        claim = self.claim(worker)
        self.begin(claim)
        return claim

    def uncertain(self, **options):
        claim = self.begun(**options)
        assert self.settle(claim, "uncertain", message="no answer").state == "uncertain"
        return claim.job_id

    def decide(self, delivery, decision, note="asked the receiver"):
        return self.db.answer("decide_delivery", delivery_id=delivery, decision=decision, note=note)

    def row(self, delivery):
        return self.db.one("select * from onceward.deliveries where id = %s", delivery)

    def state(self, delivery):
        return self.row(delivery).state

    def alerts(self):
        return self.db.run("select * from onceward.deliveries where is_alert order by id")
