// Package explain tells the life of one message: who wrote it, what became of it,
// what it waits for, and what happens next.
//
// It reads a few rows by their keys, in one snapshot, and locks nothing that
// anybody waits for. A role that may not read payloads can use it; what only the
// row of messages says is left out then.
package explain
