"""The whole system on one database of a test: pages on a real server, a worker beside them, and people who call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

import httpx
from psycopg.types.json import Jsonb

from onceward.deliveries import Outbox
from onceward.web import WebSettings, secrets
from onceward.web.server import make_server, open_socket
from onceward.worker import Worker
from onceward_apps.alerts import routes, store
from onceward_apps.alerts.functions import Functions
from onceward_apps.alerts.jobs import known, make_app
from onceward_apps.alerts.section import make_section
from onceward_apps.alerts.settings import Settings
from onceward_apps.alerts.sync.access import Access

SETTINGS = Settings(base_url="https://alerts.example")
NORTH, SOUTH = "northwind", "kiwi"


class Place:
    """Two tenants, on different sides of the date line."""

    def __init__(self, kit, folder, *, functions: Functions | None = None) -> None:
        self.kit, self.clock = kit, kit.clock
        self.functions = known() if functions is None else functions
        store.install(kit.dsn)
        self.conn = kit.connect()
        self.outbox = folder / "outbox"
        self.app = make_app(
            SETTINGS,
            kit.dsn,
            email=Outbox(str(self.outbox), sender="alerts@example.com"),
            functions=self.functions,
        )
        self.tenants = {
            NORTH: self.value("select alerts.add_tenant(%s, 'Northwind', 'America/Los_Angeles', '{ops@example.com}')", NORTH),
            SOUTH: self.value("select alerts.add_tenant(%s, 'Kiwi', 'Pacific/Auckland', '{kea@example.com}')", SOUTH),
        }  # fmt: skip

    # ------------------------------------------------------------ the database

    def rows(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(statement, params or None).fetchall()

    def value(self, statement: str, *params: Any) -> Any:
        ((value,),) = self.rows(statement, *params)
        return value

    @contextlib.contextmanager
    def acting(self, tenant: str, role: str | None = None) -> Iterator[Any]:
        """A transaction for a tenant, perhaps with the rights of a role."""
        with self.kit.connect(autocommit=False) as conn:
            conn.execute("select set_config('onceward.tenant', %s, true)", [tenant])
            if role:
                conn.execute(f"set local role {role}")
            yield conn
            conn.commit()

    def metric(self, code: str = "revenue", tenant: str = NORTH, better: str = "up") -> str:
        self.conn.execute(
            "insert into alerts.metric_definitions (tenant_id, metric_code, title, unit, better) "
            "values (%s, %s, initcap(%s), '$', %s) on conflict do nothing",
            [self.tenants[tenant], code, code, better],
        )
        return code

    def values(
        self, code: str, values: Sequence[tuple[datetime, float]], *, of: str = "", tenant: str = NORTH
    ) -> None:
        self.metric(code, tenant)
        with self.conn.cursor() as cursor:
            cursor.executemany(
                "insert into alerts.metric_values (tenant_id, metric_code, observed_at, external_object_id, value) "
                "values (%s, %s, %s, %s, %s) on conflict (tenant_id, metric_code, observed_at, external_object_id) "
                "do update set value = excluded.value",
                [(self.tenants[tenant], code, at, of, value) for at, value in values],
            )

    def rule(self, code: str = "revenue", *, tenant: str = NORTH, **given: Any) -> UUID:
        self.metric(code, tenant)
        fields = {
            "kind": "threshold",
            "comparison": "below",
            "threshold": 100.0,
            "title": f"{code} is low",
            **given,
        }
        columns = ", ".join(fields)
        return self.value(
            f"insert into alerts.alert_configs (tenant_id, metric_code, {columns}) "
            f"values ({', '.join(['%s'] * (len(fields) + 2))}) returning id",
            self.tenants[tenant], code, *fields.values(),
        )  # fmt: skip

    def alerts(self, tenant: str = NORTH) -> list[tuple[Any, ...]]:
        return self.rows(
            "select external_object_id, alert_date, severity, status from alerts.alert_instances where tenant_id = %s "
            "order by alert_date, external_object_id", self.tenants[tenant],
        )  # fmt: skip

    def runs(self, function: str, tenant: str = NORTH) -> list[tuple[Any, ...]]:
        return self.rows(
            "select lock_key, status, retry_count from alerts.job_runs where function_name = %s and tenant_id = %s "
            "order by created_at, lock_key", function, self.tenants[tenant],
        )  # fmt: skip

    def fill(self) -> None:
        """Something to do for each function, for both tenants."""
        now = self.clock.now()
        for tenant in self.tenants:
            for shop in ("berlin", "lisbon"):
                self.values(
                    "revenue",
                    [(now - timedelta(hours=6 * n + 1), 60.0 + n) for n in range(60)],
                    of=shop,
                    tenant=tenant,
                )
            self.rule(tenant=tenant)
            decided = self.rule(tenant=tenant, title="revenue was low")
            self.conn.execute(
                "with alert as ("
                "  insert into alerts.alert_instances (tenant_id, alert_config_id, external_object_id, alert_date, metric_code, "
                "    title, message, severity, triggered_at) "
                "  select %(tenant)s, %(rule)s, 'berlin', %(at)s::date, 'revenue', 'Revenue was low', 'It was low.', 'warning', %(at)s "
                "  returning id) "
                "insert into alerts.decision_cards (tenant_id, alert_instance_id, metric_code, period_start, title, options, "
                "  due_on, status, decision, decided_at, decided_by) "
                'select %(tenant)s, id, \'revenue\', %(at)s::date, \'Revenue was low\', \'[{"code": "act", "title": "Act"}]\', '
                "  %(at)s::date, 'DECIDED', 'act', %(at)s, 'ana' from alert",
                {"tenant": self.tenants[tenant], "rule": decided, "at": now - timedelta(days=9)},
            )
            # One of today that has neither a card nor been told of, a customer, and files of a warehouse and of a shop.
            self.conn.execute(
                "insert into alerts.alert_instances (tenant_id, alert_config_id, external_object_id, alert_date, metric_code, "
                "  title, message, severity, triggered_at) "
                "select t.id, %(rule)s, 'lisbon', (%(at)s at time zone t.time_zone)::date, 'revenue', 'Revenue was low', 'It is low.', "
                "  'warning', %(at)s from alerts.tenants as t where t.id = %(tenant)s",
                {"tenant": self.tenants[tenant], "rule": decided, "at": now - timedelta(minutes=1)},
            )
            self.conn.execute(
                "insert into alerts.orders (tenant_id, order_id, customer_id, email, name, ordered_at, updated_at, amount) "
                "values (%s, '7', 'C7', 'ada@example.com', 'Ada', %s, %s, 40)",
                [self.tenants[tenant], now - timedelta(days=2), now - timedelta(days=2)],
            )
            self._sources(tenant, now)

    def _sources(self, tenant: str, now: datetime) -> None:
        """Something to read for both synchronisations: a warehouse's values and a shop's orders, as files."""
        folder = Access.from_environ(os.environ).files / tenant
        folder.mkdir(parents=True, exist_ok=True)
        moments = [(now - timedelta(hours=hour)).isoformat() for hour in (30, 20, 10)]
        values = [f"visits,{at},berlin,{number + 10}\n" for number, at in enumerate(moments)]
        orders = [
            f"{number + 100},C{number},{at},{at},{number + 20}.50\n" for number, at in enumerate(moments)
        ]
        (folder / "warehouse.csv").write_text(
            "metric_code,observed_at,external_object_id,value\n" + "".join(values)
        )
        (folder / "shop.csv").write_text(
            "order_id,customer_id,ordered_at,updated_at,amount\n" + "".join(orders)
        )
        self.metric("visits", tenant)
        with self.acting(tenant, "onceward_operator") as conn:
            for function, target, file in (
                ("sync-bigquery", "metric_values", "warehouse.csv"),
                ("sync-ecommerce-data", "orders", "shop.csv"),
            ):
                conn.execute(
                    "select alerts.add_sync_source(%s, 'files', 'csv', %s, %s)",
                    [function, target, Jsonb({"path": file})],
                )

    def effects(self, tenant: str = NORTH) -> dict[str, tuple[int, str]]:
        """Everything that functions have written for a tenant, in one figure per table; and what is in the ledger."""
        tables = [name for (name,) in self.rows(
            "select relname from pg_class where relnamespace = 'alerts'::regnamespace and relkind = 'r' "
            "and relname not in ('runs', 'tenants') order by 1"
        )]  # fmt: skip
        found = {
            table: self.rows(
                f"select count(*), coalesce(md5(string_agg(t::text, ' ' order by t::text)), '') from alerts.{table} as t "
                "where tenant_id = %s",
                self.tenants[tenant],
            )[0]
            for table in tables
        }
        found["ledger"] = self.rows(
            "select count(*), coalesce(md5(string_agg(key, ' ' order by key)), '') from onceward.deliveries where tenant = %s",
            tenant,
        )[0]
        return found

    # ------------------------------------------------------------ trouble

    @contextlib.contextmanager
    def broken(self) -> Iterator[None]:
        """No run gets further than to its tenant."""
        self.conn.execute("alter function alerts.acting_tenant() rename to acting_tenant_gone")
        yield
        self.conn.execute("alter function alerts.acting_tenant_gone() rename to acting_tenant")

    def kill_in_the_middle(self, job: UUID) -> None:
        """Start a real worker, and kill it when the work of a run is written and its checkpoint is not."""
        # Every checkpoint but that of the run's beginning waits for a lock that is held here.
        self.conn.execute(
            "create or replace function public.held() returns trigger language plpgsql as "
            "$$ begin perform pg_advisory_xact_lock(4711); return new; end; $$;"
            "create trigger held before insert on onceward.step_private for each row when (new.name <> 'tenant') "
            "execute function public.held()"
        )
        with self.kit.connect(autocommit=False) as blocker:
            blocker.execute("select pg_advisory_xact_lock(4711)")
            environment = os.environ | {
                "ONCEWARD_DSN": self.kit.dsn,
                "ALERTS_TEST_OUTBOX": str(self.outbox),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            }
            process = subprocess.Popen(
                [sys.executable, "-m", "onceward.cli", "worker", "tests.apps.alerts.mortal:app", "--lanes", "alerts", "--lease", "30s"],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                while not self.value(
                    "select exists (select from pg_locks as l where not l.granted and l.locktype = 'advisory' and l.objid = 4711 and "
                    "l.database = (select oid from pg_database where datname = current_database())) "
                    "and (select state = 'running' from onceward.jobs where id = %s)", job
                ):  # fmt: skip
                    assert process.poll() is None, "the worker ended by itself"
                    state = self.value("select state from onceward.jobs where id = %s", job)
                    assert state in {"ready", "running"}, f"the run was not held: {state}"
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.02)
            finally:
                process.kill()
                process.wait()
            blocker.rollback()
        # Its connections notice only when they are written to.
        while self.value(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'onceward%%' "
            "and pid <> pg_backend_pid() and pg_terminate_backend(pid)"
        ):
            pass
        self.conn.execute("drop trigger held on onceward.step_private")

    # ------------------------------------------------------------ work

    def work(self) -> int:
        return self.kit.drain(self.app)

    def begin(
        self, name: str, tenant: str = NORTH, *, at: datetime | None = None, entity: Any = None
    ) -> tuple[Any, ...]:
        """As a caller in SQL would, with the rights of a producer."""
        function = self.functions[name]
        with self.acting(tenant, "onceward_producer") as conn:
            return conn.execute(
                "select outcome, job_id, lock_key, holder from alerts.begin_function(%s, %s, %s::jsonb, %s, %s)",
                [name, function.window, entity, at, self.functions.chain(function)],
            ).fetchone()

    def token(self, tenant: str | None = NORTH, *scopes: str) -> str:
        secret = secrets.new(secrets.TOKEN)
        self.conn.execute(
            "select onceward.create_token('cron', %s, %s, %s)",
            [secrets.digest(secret), list(scopes or ("enqueue",)), tenant],
        )
        return secret

    @contextlib.contextmanager
    def served(self, *, patience: float = 20.0, workers: bool = True) -> Iterator[Calls]:
        section = make_section(self.functions)
        public = routes.public_routes(self.functions, patience=patience)
        settings = WebSettings(
            dsn=self.kit.dsn,
            sections=[replace(section, public=public)],
        )
        ready = threading.Event()
        server = make_server(settings, started=ready.set)
        with open_socket("127.0.0.1", 0) as listening, contextlib.ExitStack() as stack:
            thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
            thread.start()
            assert ready.wait(20), "the server did not start"
            stack.callback(thread.join, 20)
            stack.callback(server.stop)
            if workers:
                stack.enter_context(self.working())
            http = httpx.Client(
                base_url=f"http://localhost:{listening.getsockname()[1]}",
                timeout=40,
                limits=httpx.Limits(max_connections=200),
                verify=False,
            )
            yield Calls(stack.enter_context(http))

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """A worker in a thread, until the end of the block."""
        worker = Worker(self.app, dsn=self.kit.dsn, lanes=["alerts", "alerts-ticks", "alerts-deliveries"])
        loop_thread = threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True)
        loop_thread.start()
        try:
            yield
        finally:
            worker.stop()
            loop_thread.join(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        pass


class Calls:
    """Callers over HTTP."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def post(self, name: str, token: str | None, body: Any = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return self.http.post(f"/functions/v1/{name}", headers=headers, json=body, **more)


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Each in a thread of its own, released at one moment."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
