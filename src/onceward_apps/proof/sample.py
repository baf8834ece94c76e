"""A product, a formulation and settings, to try the system with."""

from __future__ import annotations

import psycopg

PRODUCT = (
    "PRC-500",
    "Protocol Raw Complete",
    "PROTOCOL RAW COMPLETE",
    "Complete raw food for adult dogs. Keep frozen at −18 °C. Feed thawed, never cooked.",
    500,
    (
        "Beef (42 %), chicken with ground bone (30 %), beef heart (10 %), beef liver (5 %), carrot (4 %), kale (3 %), "
        "blueberry (2 %), flaxseed (1.5 %), salmon oil (1 %), sea kelp (0.5 %), egg (0.5 %), vitamin E, zinc, manganese, iodine."
    ),
)
FORMULATION = (
    "v2.1", "Complete Adult", "Beef and chicken, balanced for adult dogs", "2024-01-01",
    "https://protocolraw.co.uk/pages/formulation-v2-1", "Eurofins", "FORM-2024-07",
)  # fmt: skip


def load(dsn: str) -> None:
    """Put the sample data in; what is there already stays as it is."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into raw_ops.products (sku, name, label_name, description, net_weight_g, ingredients)"
            " values (%s, %s, %s, %s, %s, %s) on conflict do nothing",
            PRODUCT,
        )
        connection.execute(
            "insert into raw_ops.formulations (version, name, description, effective_from, shopify_page_url, lab_name,"
            " certificate_reference) values (%s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
            FORMULATION,
        )
        connection.execute(
            "insert into raw_ops.config (key, value) values ('default_cogs_per_kg', '3.80'), ('default_product_sku', %s)"
            " on conflict do nothing",
            PRODUCT[:1],
        )
