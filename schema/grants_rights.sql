
-- Part 3: rights. As the owner of the tables, after every migration.
{{- with .Application}}
-- Applications write messages, may take back their own (by id or key), and keep
-- claims. They read no payloads.
grant usage on schema {{$.Schema}} to {{.}};
grant insert (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at),
	select (id, key), delete on {{$.Schema}}.messages to {{.}};
grant select, insert, update (claimed_at, expires_at, result) on {{$.Schema}}.claims to {{.}};
grant execute on function
	{{$.Schema}}.enqueue(text, text, jsonb, text, jsonb, integer, integer, timestamptz),
	{{$.Schema}}.claim(text, text, interval)
	to {{.}};
{{- end}}
{{- with .Relay}}
-- The relay reads messages and writes what became of them. It deletes what has
-- served its time, and never updates a message. To pass over a claim that somebody
-- is taking it has to lock rows, for which Postgres wants the right to update a
-- column.
grant usage on schema {{$.Schema}} to {{.}};
grant select, delete on {{$.Schema}}.messages to {{.}};
grant select on sequence {{$.Schema}}.messages_id_seq to {{.}};
grant select, insert, delete on {{$.Schema}}.dispatched to {{.}};
grant select, insert, update, delete on {{$.Schema}}.deferred, {{$.Schema}}.dead_letters to {{.}};
grant select, insert, delete on {{$.Schema}}.withdrawn to {{.}};
grant select, insert, update on {{$.Schema}}.relays to {{.}};
grant select, insert, update, delete on {{$.Schema}}.envelopes to {{.}};
grant select on {{$.Schema}}.queues, {{$.Schema}}.message_status, {{$.Schema}}.schema_version to {{.}};
grant select (ctid, expires_at), update (claimed_at), delete on {{$.Schema}}.claims to {{.}};
-- For the buttons of its page: to pause a queue and say why, and no other setting.
grant insert (queue, paused, paused_by, paused_reason), update (paused, paused_by, paused_reason) on {{$.Schema}}.queues to {{.}};
grant execute on function {{$.Schema}}.record_position(text, bigint, pg_lsn) to {{.}};
{{- end}}
{{- with .Monitoring}}
-- Monitoring sees states, counts and reasons, never payloads; of claims when they
-- expire.
grant usage on schema {{$.Schema}} to {{.}};
grant select on {{$.Schema}}.message_status, {{$.Schema}}.dispatched, {{$.Schema}}.deferred, {{$.Schema}}.dead_letters,
	{{$.Schema}}.withdrawn, {{$.Schema}}.queues, {{$.Schema}}.envelopes, {{$.Schema}}.relays, {{$.Schema}}.schema_version to {{.}};
grant select (expires_at) on {{$.Schema}}.claims to {{.}};
{{- end}}
{{- with .Operator}}
-- Operators see what monitoring does, redrive and discard dead letters, end the wait
-- of deferred messages, and write the settings of queues. They read no payloads.
grant usage on schema {{$.Schema}} to {{.}};
grant select on {{$.Schema}}.message_status, {{$.Schema}}.dispatched, {{$.Schema}}.withdrawn, {{$.Schema}}.envelopes,
	{{$.Schema}}.relays, {{$.Schema}}.schema_version to {{.}};
grant select (expires_at) on {{$.Schema}}.claims to {{.}};
grant select, insert, update, delete on {{$.Schema}}.deferred, {{$.Schema}}.dead_letters to {{.}};
grant select, insert, update on {{$.Schema}}.queues to {{.}};
{{- end}}
{{- with .Owner}}
-- As an administrator again: the publication stays without this right.
revoke create on database {{$.Database}} from {{.}};
{{- end}}
