import json
import os

import psycopg
from psycopg.types.json import Jsonb


def place(conn, order, total):
    """Write an order and its message, both or neither; False if it was placed before."""
    key = f"order-{order}-placed"
    event = {"event_id": key, "order": order, "total": total}
    with conn.transaction():
        message_id = conn.execute(
            "select outbox.enqueue(key => %s, queue => 'orders', ordering_key => %s, payload => %s)",
            (key, f"order-{order}", Jsonb(event)),
        ).fetchone()[0]
        if message_id is None:
            return False
        conn.execute("insert into orders (id, total) values (%s, %s)", (order, total))
        return True


def schedule(conn, key, order):
    """In thirty days. With delay_seconds => 300 the queue would wait instead."""
    conn.execute(
        "select outbox.enqueue(key => %s, queue => 'mails', payload => %s, deliver_at => now() + interval '30 days')",
        (key, Jsonb({"event_id": key, "order": order})),
    )


def withdraw(conn, key):
    """The number of messages that were there."""
    return conn.execute("delete from outbox.messages where key = %s", (key,)).rowcount


def handle(conn, payload):
    """Act once on a message that the queue delivered; a repeat gets the first answer."""
    event = json.loads(payload)
    with conn.transaction():
        mine = conn.execute("select outbox.claim('mailer', %s, interval '30 days')", (event["event_id"],)).fetchone()[0]
        if not mine:
            before = conn.execute(
                "select result from outbox.claims where consumer = 'mailer' and event_id = %s", (event["event_id"],)
            ).fetchone()
            return "handled before", before[0]
        mail = conn.execute("insert into mails (order_id) values (%s) returning id", (event["order"],)).fetchone()[0]
        conn.execute(
            "update outbox.claims set result = %s where consumer = 'mailer' and event_id = %s",
            (Jsonb({"mail": mail}), event["event_id"]),
        )
        return "handled", {"mail": mail}


# With autocommit each transaction() is one, not a savepoint of an earlier one.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
    for _ in range(2):
        print("placed" if place(conn, 1041, "12.50") else "seen before")

    schedule(conn, "order-1041-review", 1041)
    print("withdrawn", withdraw(conn, "order-1041-review"))

    try:
        place(conn, 1042, "x" * 256000)
    except psycopg.errors.CheckViolation as e:
        print("too large:", e.sqlstate)

    for _ in range(2):
        done, result = handle(conn, '{"event_id": "order-1041-placed", "order": 1041, "total": "12.50"}')
        print(done, json.dumps(result))
