const { Client } = require("pg");

// transaction commits what work did, and rolls back if it throws.
async function transaction(db, work) {
  await db.query("begin");
  try {
    const result = await work();
    await db.query("commit");
    return result;
  } catch (e) {
    await db.query("rollback");
    throw e;
  }
}

// place writes an order and its message, both or neither; false if it was placed before.
function place(db, order, total) {
  const key = `order-${order}-placed`;
  const event = { event_id: key, order, total };
  return transaction(db, async () => {
    const { rows } = await db.query(
      "select outbox.enqueue(key => $1, queue => 'orders', ordering_key => $2, payload => $3) as id",
      [key, `order-${order}`, event],
    );
    if (rows[0].id === null) return false;
    await db.query("insert into orders (id, total) values ($1, $2)", [order, total]);
    return true;
  });
}

// schedule: in thirty days. With delay_seconds => 300 the queue would wait instead.
function schedule(db, key, order) {
  return db.query(
    "select outbox.enqueue(key => $1, queue => 'mails', payload => $2, deliver_at => now() + interval '30 days')",
    [key, { event_id: key, order }],
  );
}

// withdraw returns the number of messages that were there.
async function withdraw(db, key) {
  return (await db.query("delete from outbox.messages where key = $1", [key])).rowCount;
}

// handle acts once on a message that the queue delivered; a repeat gets the first answer.
function handle(db, event) {
  return transaction(db, async () => {
    const claim = await db.query("select outbox.claim('mailer', $1, interval '30 days') as mine", [event.event_id]);
    if (!claim.rows[0].mine) {
      const before = await db.query(
        "select result::text from outbox.claims where consumer = 'mailer' and event_id = $1",
        [event.event_id],
      );
      return `handled before ${before.rows[0].result}`;
    }
    const mail = await db.query("insert into mails (order_id) values ($1) returning id", [event.order]);
    const claimed = await db.query(
      "update outbox.claims set result = $1 where consumer = 'mailer' and event_id = $2 returning result::text",
      [{ mail: Number(mail.rows[0].id) }, event.event_id],
    );
    return `handled ${claimed.rows[0].result}`;
  });
}

async function main() {
  const db = new Client({ connectionString: process.env.DATABASE_URL });
  await db.connect();
  for (let i = 0; i < 2; i++) {
    console.log((await place(db, 1041, "12.50")) ? "placed" : "seen before");
  }

  await schedule(db, "order-1041-review", 1041);
  console.log("withdrawn", await withdraw(db, "order-1041-review"));

  await place(db, 1042, "x".repeat(256000)).catch((e) => {
    if (e.constraint !== "messages_payload_size") throw e;
    console.log("too large:", e.code);
  });

  for (let i = 0; i < 2; i++) {
    console.log(await handle(db, { event_id: "order-1041-placed", order: 1041, total: "12.50" }));
  }
  await db.end();
}

main();
