// Package pgtest runs real, throwaway Postgres clusters for tests, the demo and
// the benchmarks.
//
// A cluster is made by initdb in a folder of its own, listens on a free port of
// 127.0.0.1 and trusts everybody there; its superuser is postgres. It is built
// for logical replication and for speed: wal_level is logical, fsync is off, so
// that it survives a killed server but not a killed machine. The server is a
// child of this process and dies with it.
//
// [Start] is for programs. Tests use the rest: [Shared] is one cluster for all
// tests of a package, [Database] and [Migrated] make a fresh database on it, and
// [New] is a cluster of a test's own, which it may stop and kill.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		conn, err := pgx.Connect(t.Context(), pgtest.Migrated(t))
//		...
//	}
//
// The environment variable PG asks for a major version (PG=18);
// OUTBOX_PG_BIN names the folder of the server's programs. Without them the
// first server found is used: /usr/lib/postgresql, then build/postgres below the
// module's root (where hack/postgres puts it), then the PATH. Postgres refuses to
// run as root: for root the server runs as the user postgres, or else nobody.
package pgtest
