#!/bin/sh
# Plays the examples of all languages that this machine has, each against a
# throwaway Postgres, and says of the others what they lack.
#
#   examples/languages/run.sh               all
#   examples/languages/run.sh python ruby   these
#
# On Debian: apt-get install postgresql-client python3-psycopg nodejs npm ruby-pg
# php-cli php-pgsql default-jdk-headless libpostgresql-jdbc-java. Node's client
# comes from npm, into build/languages.
set -u
cd "$(dirname "$0")/../.."

here=examples/languages
built=build/languages
jar=${POSTGRESQL_JAR:-/usr/share/java/postgresql.jar}
failed=0

OUTBOX_PG_BIN=$(hack/postgres "${PG:-any}") || exit 1
export OUTBOX_PG_BIN
mkdir -p "$built"
go build -o "$built/play" "./$here" || exit 1

# play LANGUAGE EXPECTED PROGRAM...
play() {
	language=$1
	shift
	if "$built/play" "$@"; then
		echo "$language: ok"
	else
		echo "$language: FAILED"
		failed=1
	fi
}

skip() { echo "$1: not run, there is no $2"; }

# has PROGRAM [ARGUMENT...]: it is there and can do this.
has() { command -v "$1" >/dev/null && "$@" >/dev/null 2>&1; }

psql_() {
	has psql --version || { skip psql psql; return; }
	echo "psql: one error is part of the example"
	play psql "$here/psql/expected.txt" sh -c 'psql -XqAt -f "$1" "$DATABASE_URL"' sh "$here/psql/outbox.sql"
}

python_() {
	for python in python3 /usr/bin/python3; do
		has "$python" -c 'import psycopg' && break
		python=
	done
	[ -n "$python" ] || { skip python "python3 with psycopg 3"; return; }
	play python "$here/expected.txt" "$python" "$here/python/outbox.py"
}

node_() {
	has node --version || { skip node node; return; }
	if ! has env NODE_PATH="$built/node_modules" node -e 'require("pg")'; then
		has npm --version && npm install --silent --no-save --prefix "$built" pg@8.23.1 >&2 ||
			{ skip node "package pg, and npm does not bring it"; return; }
	fi
	play node "$here/expected.txt" env NODE_PATH="$PWD/$built/node_modules" node "$here/node/outbox.js"
}

java_() {
	has javac -version || { skip java "JDK"; return; }
	[ -r "$jar" ] || { skip java "JDBC driver at $jar"; return; }
	play java "$here/expected.txt" java -cp "$jar" "$here/java/Outbox.java"
}

ruby_() {
	has ruby -e 'require "pg"' || { skip ruby "ruby with the gem pg"; return; }
	play ruby "$here/expected.txt" ruby "$here/ruby/outbox.rb"
}

php_() {
	has php -r 'exit(in_array("pgsql", PDO::getAvailableDrivers()) ? 0 : 1);' || { skip php "php with PDO for Postgres"; return; }
	play php "$here/expected.txt" php "$here/php/outbox.php"
}

[ $# -gt 0 ] || set -- psql python node java ruby php
for language; do
	case $language in
	psql | python | node | java | ruby | php) "${language}_" ;;
	*) echo "$language: no such example" >&2; failed=1 ;;
	esac
done
exit "$failed"
