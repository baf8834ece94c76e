from __future__ import annotations

import json

import pytest

from tests.apps.alerts.place import NORTH
from tests.apps.alerts.sync.shop import COLUMNS, Shop

FUNCTION = "sync-ecommerce-data"


class Syncs:
    """The system with files and a shop to read from; windows are an hour each."""

    def __init__(self, place, folder) -> None:
        self.place, self.folder = place, folder
        (folder / NORTH).mkdir(parents=True)

    def write(self, name: str, content: str | bytes, tenant: str = NORTH) -> None:
        path = self.folder / tenant / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def source(
        self,
        name: str,
        kind: str,
        target: str = "orders",
        *,
        tenant: str = NORTH,
        function: str = FUNCTION,
        **settings,
    ):
        with self.place.acting(tenant, "onceward_operator") as conn:
            (found,) = conn.execute(
                "select alerts.add_sync_source(%s, %s, %s, %s, %s)",
                [function, name, kind, target, json.dumps(settings)],
            ).fetchone()
        return found

    def shop_source(self, shop: Shop, **settings):
        return self.source(
            "shop",
            "http",
            url=f"{shop.url}/orders.json",
            items="orders",
            columns=COLUMNS,
            overlap=600,
            **settings,
        )

    def begin(self, tenant: str = NORTH, function: str = FUNCTION):
        """In the next hour."""
        self.place.clock.advance("1 hour")
        outcome, job_id, *_ = self.place.begin(function, tenant)
        assert outcome == "started"
        return job_id

    def run(self, tenant: str = NORTH, function: str = FUNCTION):
        """A run in the next hour, worked off; its result by source."""
        job_id = self.begin(tenant, function)
        self.place.work()
        return self.result(job_id)

    def result(self, job_id):
        status, result, error = self.place.rows(
            "select status, result, error_message from alerts.job_runs where id = %s", job_id
        )[0]
        assert status == "completed", (status, error)
        return result["sources"]

    def refused(self, tenant: str = NORTH, function: str = FUNCTION) -> str:
        """A run whose first attempt fails; its error.  It waits for its retry, and is no sync error yet."""
        job_id = self.begin(tenant, function)
        self.place.work()
        ((state, message),) = self.place.rows(
            "select j.state, a.message from onceward.jobs as j join onceward.attempts as a on a.job_id = j.id where j.id = %s",
            job_id,
        )
        assert state == "scheduled"
        assert self.errors(job_id) == []
        return message

    def errors(self, job_id):
        return self.place.rows(
            "select error_code, error_message from alerts.sync_errors where id = %s", job_id
        )

    def orders(self, columns: str = "order_id, amount::text", tenant: str = NORTH):
        return self.place.rows(
            f"select {columns} from alerts.orders where tenant_id = %s order by order_id",
            self.place.tenants[tenant],
        )

    def cursor(self, name: str = "shop"):
        return self.place.value(
            "select c.cursor from alerts.sync_cursors as c join alerts.sync_sources as s on s.id = c.source_id where s.name = %s",
            name,
        )

    def versions(self):
        """The physical rows: a row that was written anew, even with the same values, is another one."""
        return self.place.rows("select order_id, ctid::text, xmin::text from alerts.orders order by 1")


@pytest.fixture
def syncs(place, tmp_path, monkeypatch):
    monkeypatch.setenv("ALERTS_SYNC_FILES", str(tmp_path / "files"))
    monkeypatch.setenv("ALERTS_SYNC_HTTP", "allow")
    return Syncs(place, tmp_path / "files")


@pytest.fixture
def shop():
    with Shop() as shop:
        yield shop
