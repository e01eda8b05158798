// Package relaybin builds the program outbox-relay and runs it as a process of
// its own, for tests that need what a process can do: die between two steps,
// get a signal, end with an exit code.
//
//	p := relaybin.Run(t, map[string]string{"DATABASE_URL": url, ...}, "run")
//	p.AwaitLog(t, "session began")
//	p.Kill()
//
// [Build] and [Start] do the same for programs that are not tests.
package relaybin
