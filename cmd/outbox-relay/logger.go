package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/config"
)

// newLogger returns the logger of the process: lines for people on a terminal,
// JSON for machines elsewhere.
func newLogger(cfg config.Log, w io.Writer) *zap.Logger {
	fields := zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "component", MessageKey: "msg",
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}
	encoder := zapcore.NewJSONEncoder(fields)
	if cfg.Format == config.FormatConsole || cfg.Format == config.FormatAuto && isTerminal(w) {
		fields.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(fields)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), cfg.Level))
}
