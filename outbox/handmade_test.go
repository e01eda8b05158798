package outbox_test

import (
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func migrated(t pgtest.TB) string {
	url := pgtest.Database(t)
	exec(t, connect(t, url), `
create schema outbox;
create table outbox.messages (
	id bigint generated always as identity primary key,
	key text not null unique constraint key_format check (key ~ '^[!-~]{1,128}$'),
	queue text not null constraint queue_format check (queue ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
	ordering_key text constraint ordering_key_length check (char_length(ordering_key) between 1 and 255),
	payload jsonb not null constraint payload_object check (jsonb_typeof(payload) = 'object' and octet_length(payload::text) <= 256000),
	headers jsonb,
	delay_seconds integer check (delay_seconds between 0 and 604800),
	priority integer check (priority between 0 and 9),
	deliver_at timestamptz,
	created_at timestamptz not null default now()
)`)
	return url
}
