<?php

// Runs a statement with its parameters.
function query(PDO $db, string $sql, array $parameters): PDOStatement
{
    $statement = $db->prepare($sql);
    $statement->execute($parameters);
    return $statement;
}

// Commits what $work did, and rolls back if it throws.
function transaction(PDO $db, callable $work): mixed
{
    $db->beginTransaction();
    try {
        $result = $work();
        $db->commit();
        return $result;
    } catch (Throwable $e) {
        $db->rollBack();
        throw $e;
    }
}

// Writes an order and its message, both or neither; false if it was placed before.
function place(PDO $db, int $order, string $total): bool
{
    $key = "order-$order-placed";
    $event = ['event_id' => $key, 'order' => $order, 'total' => $total];
    return transaction($db, function () use ($db, $key, $order, $total, $event) {
        $id = query(
            $db,
            "select outbox.enqueue(key => :key, queue => 'orders', ordering_key => :ordering, payload => :payload)",
            ['key' => $key, 'ordering' => "order-$order", 'payload' => json_encode($event, JSON_THROW_ON_ERROR)],
        )->fetchColumn();
        if ($id === null) {
            return false;
        }
        query($db, 'insert into orders (id, total) values (:id, :total)', ['id' => $order, 'total' => $total]);
        return true;
    });
}

// In thirty days. With delay_seconds => 300 the queue would wait instead.
function schedule(PDO $db, string $key, int $order): void
{
    query(
        $db,
        "select outbox.enqueue(key => :key, queue => 'mails', payload => :payload, deliver_at => now() + interval '30 days')",
        ['key' => $key, 'payload' => json_encode(['event_id' => $key, 'order' => $order], JSON_THROW_ON_ERROR)],
    );
}

// Returns the number of messages that were there.
function withdraw(PDO $db, string $key): int
{
    return query($db, 'delete from outbox.messages where key = :key', ['key' => $key])->rowCount();
}

// Acts once on a message that the queue delivered; a repeat gets the first answer.
function handle(PDO $db, string $payload): string
{
    $event = json_decode($payload, true, flags: JSON_THROW_ON_ERROR);
    $id = $event['event_id'];
    return transaction($db, function () use ($db, $event, $id) {
        $mine = query($db, "select outbox.claim('mailer', :id, interval '30 days')", ['id' => $id])->fetchColumn();
        if ($mine) {
            $mail = query($db, 'insert into mails (order_id) values (:id) returning id', ['id' => $event['order']])->fetchColumn();
            query(
                $db,
                "update outbox.claims set result = :result where consumer = 'mailer' and event_id = :id",
                ['result' => json_encode(['mail' => (int) $mail], JSON_THROW_ON_ERROR), 'id' => $id],
            );
        }
        $result = query($db, "select result from outbox.claims where consumer = 'mailer' and event_id = :id", ['id' => $id]);
        return ($mine ? 'handled ' : 'handled before ') . $result->fetchColumn();
    });
}

// PDO takes no URL.
$at = parse_url(getenv('DATABASE_URL'));
$db = new PDO(
    "pgsql:host={$at['host']};port={$at['port']};dbname=" . ltrim($at['path'], '/'),
    $at['user'],
    $at['pass'] ?? null,
    [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION],
);
for ($i = 0; $i < 2; $i++) {
    echo place($db, 1041, '12.50') ? "placed\n" : "seen before\n";
}

schedule($db, 'order-1041-review', 1041);
echo 'withdrawn ', withdraw($db, 'order-1041-review'), "\n";

try {
    place($db, 1042, str_repeat('x', 256000));
} catch (PDOException $e) {
    echo 'too large: ', $e->getCode(), "\n";
}

for ($i = 0; $i < 2; $i++) {
    echo handle($db, '{"event_id": "order-1041-placed", "order": 1041, "total": "12.50"}'), "\n";
}
