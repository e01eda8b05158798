require "json"
require "pg"

# Writes an order and its message, both or neither; false if it was placed before.
def place(conn, order, total)
  key = "order-#{order}-placed"
  event = { event_id: key, order: order, total: total }
  conn.transaction do
    message_id = conn.exec_params(<<~SQL, [key, "order-#{order}", JSON.generate(event)]).getvalue(0, 0)
      select outbox.enqueue(key => $1, queue => 'orders', ordering_key => $2, payload => $3)
    SQL
    if message_id
      conn.exec_params("insert into orders (id, total) values ($1, $2)", [order, total])
    end
    !message_id.nil?
  end
end

# In thirty days. With delay_seconds => 300 the queue would wait instead.
def schedule(conn, key, order)
  conn.exec_params(<<~SQL, [key, JSON.generate(event_id: key, order: order)])
    select outbox.enqueue(key => $1, queue => 'mails', payload => $2, deliver_at => now() + interval '30 days')
  SQL
end

# The number of messages that were there.
def withdraw(conn, key)
  conn.exec_params("delete from outbox.messages where key = $1", [key]).cmd_tuples
end

# Acts once on a message that the queue delivered; a repeat gets the first answer.
def handle(conn, payload)
  event = JSON.parse(payload)
  id = event["event_id"]
  conn.transaction do
    mine = conn.exec_params("select outbox.claim('mailer', $1, interval '30 days')", [id]).getvalue(0, 0) == "t"
    if mine
      mail = conn.exec_params("insert into mails (order_id) values ($1) returning id", [event["order"]]).getvalue(0, 0)
      conn.exec_params(<<~SQL, [JSON.generate(mail: mail.to_i), id])
        update outbox.claims set result = $1 where consumer = 'mailer' and event_id = $2
      SQL
    end
    result = conn.exec_params("select result from outbox.claims where consumer = 'mailer' and event_id = $1", [id])
    "#{mine ? "handled" : "handled before"} #{result.getvalue(0, 0)}"
  end
end

conn = PG.connect(ENV.fetch("DATABASE_URL"))
2.times { puts place(conn, 1041, "12.50") ? "placed" : "seen before" }

schedule(conn, "order-1041-review", 1041)
puts "withdrawn #{withdraw(conn, "order-1041-review")}"

begin
  place(conn, 1042, "x" * 256_000)
rescue PG::CheckViolation => e
  puts "too large: #{e.result.error_field(PG::PG_DIAG_SQLSTATE)}"
end

2.times { puts handle(conn, '{"event_id": "order-1041-placed", "order": 1041, "total": "12.50"}') }
