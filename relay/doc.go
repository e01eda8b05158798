// Package relay moves messages from a Source to a Publisher and records each
// outcome.
package relay
