-- The order and its message are one transaction: both exist, or neither.
begin;
insert into orders (id, total) values (1041, 12.50);
select outbox.enqueue(
	key          => 'order-1041-placed',
	queue        => 'orders',
	ordering_key => 'order-1041',
	payload      => '{"event_id": "order-1041-placed", "order": 1041, "total": "12.50"}') is not null as written;
commit;

-- The same key again: null, and nothing was written.
select outbox.enqueue(
	key     => 'order-1041-placed',
	queue   => 'orders',
	payload => '{"event_id": "order-1041-placed", "order": 1041, "total": "12.50"}') is null as seen_before;

-- In five minutes: the queue has the message and waits.
select outbox.enqueue(
	key           => 'order-1041-thanks',
	queue         => 'mails',
	payload       => '{"event_id": "order-1041-thanks", "order": 1041}',
	delay_seconds => 300) is not null as written;

-- In thirty days: the outbox keeps the message, so it can be withdrawn.
select outbox.enqueue(
	key        => 'order-1041-review',
	queue      => 'mails',
	payload    => '{"event_id": "order-1041-review", "order": 1041}',
	deliver_at => now() + interval '30 days') is not null as written;
delete from outbox.messages where key = 'order-1041-review' returning key as withdrawn;

-- Too large: ERROR 23514, constraint "messages_payload_size".
select outbox.enqueue(
	key     => 'order-1041-scan',
	queue   => 'orders',
	payload => jsonb_build_object('event_id', 'order-1041-scan', 'scan', repeat('x', 256000)));

-- The content goes elsewhere first, the message says where it is.
select outbox.enqueue(
	key     => 'order-1041-scan',
	queue   => 'orders',
	payload => '{"event_id": "order-1041-scan", "scan": {"url": "https://files.example/scans/1041", "bytes": 256000}}')
	is not null as written;

-- The consumer: the claim, its effect and its result are one transaction.
begin;
select outbox.claim(consumer => 'mailer', event_id => 'order-1041-placed', retention => interval '30 days') as mine;
insert into mails (order_id) values (1041);
update outbox.claims set result = '{"mail": 1}' where consumer = 'mailer' and event_id = 'order-1041-placed';
commit;

-- The same event again: not mine, and what the first one answered.
begin;
select outbox.claim(consumer => 'mailer', event_id => 'order-1041-placed', retention => interval '30 days') as mine;
select result from outbox.claims where consumer = 'mailer' and event_id = 'order-1041-placed' and expires_at > now();
commit;
