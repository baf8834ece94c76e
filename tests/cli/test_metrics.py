"""`onceward metrics`."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from onceward.metrics import METRICS


def test_metrics_are_printed_as_prometheus_reads_them(cli, db):
    db.enqueue()

    families = {family.name: family for family in text_string_to_metric_families(cli.ok("metrics").out)}

    assert set(families) == {metric.name for metric in METRICS if metric.source == "database"}
    ready = [s for s in families["onceward_jobs"].samples if s.labels["state"] == "ready"]
    assert [(sample.labels["lane"], sample.value) for sample in ready] == [("default", 1.0)]


def test_metrics_as_json_and_with_a_bound(cli, db):
    db.enqueue_many("ocr", [{}] * 5)

    rows = cli.json("metrics", "--most", 3)

    assert {"name": "onceward_jobs", "labels": {"lane": "default", "state": "ready"}, "value": 3.0} in rows


def test_a_producer_may_not_read_the_metrics_of_everybody(cli, login):
    assert "grant onceward_auditor to" in cli.refused(1, "metrics", dsn=login("onceward_producer"))
