
-- Part 1: roles. As an administrator, before the first migration. They get no
-- password here.
{{- range .New}}
do $role$ begin
	if not exists (select from pg_catalog.pg_roles where rolname = {{literal .Name}}) then
		create role {{.Role}} {{.Login}};
	end if;
end $role$;
{{- end}}
{{- range .New}}
grant connect on database {{$.Database}} to {{.Role}};
{{- end}}
{{- with .Owner}}
-- For the schema and the publication; part 3 takes it back.
grant create on database {{$.Database}} to {{.}};
{{- end}}
{{- with .Relay}}
{{- if $.Poll}}
-- Optional: the relay names the sessions that hold messages back.
{{- else}}
-- The relay reads the WAL, which shows all tables of the databases that it may
-- connect to. Without a line for "replication" in pg_hba.conf it cannot copy
-- the whole server.
{{- if eq $.Vendor "rds"}}
grant rds_replication to {{.}};
{{- else}}
alter role {{.}} replication;
{{- end}}
-- Optional: the relay names the sessions that keep a slot from being made.
{{- end}}
grant pg_read_all_stats to {{.}};
{{- end}}
{{- with .Monitoring}}
grant pg_monitor to {{.}};
{{- end}}
{{- with .Owner}}
-- Part 2: outbox-relay migrate up, as {{.}}.
{{- else}}
-- Part 2: outbox-relay migrate up.
{{- end}}
