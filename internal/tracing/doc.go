// Package tracing sends spans to a collector of OpenTelemetry, by OTLP over HTTP,
// if the usual variables of the environment ask for it ([Config]). Otherwise
// [Start] returns nil, and there is no goroutine, no queue and no span.
//
// Traces are never worth a message. A span waits in a queue of a fixed size for the
// one goroutine that sends; a full queue, and a collector that is slow, broken or
// gone, lose spans and hold nothing up. What is lost is counted, and logged once.
//
// The SDK reads most of its variables by itself and complains where no operator
// looks, in texts that quote the variables, whose values may be secrets. While
// traces are on, its complaints become log lines without any value.
package tracing
