// Package infrai publishes messages to the Infrai queue. It is the only place
// that knows the queue's HTTP.
//
// One message is one POST to /v1/queue/publish. Its body is canonical JSON: the
// members sorted, no insignificant space, numbers with the digits that Postgres
// printed, one newline at the end.
//
//	{"delay_seconds":5,"idempotency_key":"order:17","payload":{...},"priority":3,"queue":"orders"}
//
// It depends on the row and its envelope alone, so that the same row has the same
// bytes at every attempt, after every restart, from the WAL and from the table. The
// header Idempotency-Key equals the body's.
//
// Without an envelope the member payload is the column payload, and the column
// headers is not sent. In the envelope cloudevents it is a CloudEvent 1.0:
//
//	{"data":{...},"datacontenttype":"application/json","id":"order:17","source":"/shop",
//	 "specversion":"1.0","subject":"order-17","time":"2026-03-01T12:00:00.25Z","type":"order.placed"}
//
// Its id is the key, its subject the ordering key, its time created_at, its data
// the payload with the digits of its numbers. Source and type are those of the
// envelope unless the headers ce-source and ce-type say something else; the headers
// traceparent and tracestate are its extension attributes of these names. What a
// CloudEvent cannot hold is left out if an event need not have it (subject, time,
// traceparent, tracestate), and refused otherwise.
//
// # What counts as accepted
//
// A status from 200 to 299 except 206 and 207, with an envelope that says
// "ok":true. That alone: a login page with status 200, a body cut short, or an
// empty 204 says nothing about the message, so the outcome is unknown and the
// same request goes out again. A missing message id is no reason to doubt.
//
// # What else can happen
//
// Every error is a *[relay.PublishError]. The first rule that fits decides:
//
//	the row cannot be sent at all (no request goes out)     refused
//	no connection, so that nothing was sent                 transient
//	no answer, or a 2xx that does not say ok                unknown outcome
//	3xx: redirects are not followed                         endpoint closed
//	401, 402, 403; 405, 407, 426                            endpoint closed
//	404                                                     queue closed
//	408, 421, 425, 5xx                                      transient
//	409                                                     conflict
//	429                                                     rate limited
//	other 4xx, and 2xx with "ok":false                      refused
//
// The code INSUFFICIENT_CREDIT turns a refusal into endpoint closed, and
// QUEUE_NOT_FOUND into queue closed, whatever the status. The second line of
// statuses, 405, 407 and 426, never speaks of a single message.
//
// Retry-After counts with 429 and 5xx: seconds, also with a fraction, or a date
// in any of HTTP's three forms. The longest of several wins, what is longer than
// [Config.MaxRetryAfter] is cut, and what is past or makes no sense is no pause.
//
// # What is never told
//
// An error holds the status, the queue's code and the request's id, and nothing
// else that came from outside, because the queue's texts may repeat the payload.
// [Config.ErrorText] lets the beginning of them in. The API key and the payload
// appear nowhere.
//
// # Traces
//
// After [Publisher.Trace] each request has a span, by OpenTelemetry's conventions
// for messaging. The span links to the context in the headers of the message, which
// stays as it is; the request carries the context of the span.
//
// # Connections
//
// HTTP/2 is used where a server offers it over TLS. Connections are given up
// when they are idle for [Config.IdleTimeout] or older than
// [Config.ConnectionMaxAge], so that changed addresses are followed. A request
// that meets a connection which the server has just closed is sent again by the
// transport, from the same bytes. The proxy variables HTTP_PROXY, HTTPS_PROXY
// and NO_PROXY are read once, by [New], which logs the proxy's address without
// its password.
package infrai
