// Package judge lets everything go wrong at once and proves from the outside
// that the promises hold: writers that log what they committed, a queue with a
// journal and scripted faults, two relays that are killed and stopped, a server
// that restarts, and a network that freezes, cuts and delays.
//
//	report, err := judge.Run(ctx, cluster, judge.Config{Duration: time.Minute, Seed: 7, ...})
//
// It knows nothing of the relay but its settings, its exit code and its tables.
// What it reads from the journal it keeps as a few bytes a message, so that a
// run may take hours.
package judge
