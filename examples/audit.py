"""The audit log: record in your own transaction, verify, and send a signed checkpoint away every night."""

import asyncio
import json
import tempfile
from pathlib import Path

from onceward import Onceward
from onceward.audit import Audit, new_key, read_private_key, read_public_key
from onceward.audit.verifier import problem
from onceward.worker import Worker

app = Onceward()
folder = Path(tempfile.mkdtemp())


@app.schedule("0 3 * * *")
@app.task
def checkpoint() -> int:
    """In production, the key lies with the worker that does this, and the checkpoint goes to somebody else."""
    with app.client(tenant="*") as client:
        log = Audit(client)
        made = log.checkpoint(read_private_key(folder / "audit.key"))
        (folder / "checkpoint.json").write_text(json.dumps(made))
        client.deliveries.email(
            key=f"audit-checkpoint:{made['seals']}",
            to="auditor@example.com",
            subject=f"Audit checkpoint: {made['seals']} seals",
            text=json.dumps(made),
        )
        log.exported(made, "email to the auditor")
    return int(made["entries"])


if __name__ == "__main__":
    public = read_public_key(new_key(folder / "audit.key"))
    with app.client(tenant="*") as client:
        number = client.record_event(
            "invoice.approved",
            entity_type="invoice",
            entity_id=42,
            before={"state": "open"},
            after={"state": "approved"},
            actor="jane@example.com",
        )
        client.enqueue(checkpoint)
        asyncio.run(Worker(app).drain())

        log = Audit(client)
        kept = json.loads((folder / "checkpoint.json").read_text())
        print(log.verify([kept], public_key=public).whole)
        proof = log.proof(number, kept)
        print(proof["entry"]["actor"], problem(proof, kept, public))
        proof["entry"]["actor"] = "somebody else"
        print(problem(proof, kept, public))

# Output:
# True
# jane@example.com None
# the entry is not in the seal
