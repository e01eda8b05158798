set local search_path = pg_catalog, pg_temp;
create table if not exists {{.Schema}}.schema_version (
	version bigint not null,
	applied_at timestamptz not null default now(),
	constraint schema_version_pkey primary key (version)
);
