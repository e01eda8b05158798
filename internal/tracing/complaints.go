package tracing

import (
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
)

// complain lets the SDK's complaints come to the log. Without it they go to
// standard error, with the values of the variables that they are about.
func complain(log *zap.Logger) {
	otel.SetLogger(logr.New(complaints{log}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("OpenTelemetry reports an error", zap.String("reason", withoutBody(err)))
	}))
}

// complaints is a logger for the SDK. It passes on what the SDK calls an error,
// and of that the text alone: errors and values quote settings.
type complaints struct{ log *zap.Logger }

// Init implements logr.LogSink.
func (complaints) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (complaints) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (complaints) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (c complaints) Error(_ error, text string, _ ...any) {
	c.log.Warn("OpenTelemetry ignores a setting that it cannot read", zap.String("reason", text))
}

// WithValues implements logr.LogSink.
func (c complaints) WithValues(...any) logr.LogSink { return c }

// WithName implements logr.LogSink.
func (c complaints) WithName(string) logr.LogSink { return c }
