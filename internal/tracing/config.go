package tracing

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Config are those of OpenTelemetry's variables that decide whether there are
// traces. The SDK reads these and the others from the environment of the process.
// None of them can be so wrong that messages should not move: a doubt is logged.
type Config struct {
	// Endpoint is where the collector takes OTLP over HTTP, such as
	// http://collector:4318; /v1/traces is added to its path. Setting it turns
	// traces on.
	Endpoint string `env:"EXPORTER_OTLP_ENDPOINT"`
	// TracesEndpoint is the same for traces alone, taken as it is. It wins over
	// Endpoint.
	TracesEndpoint string `env:"EXPORTER_OTLP_TRACES_ENDPOINT"`
	// Protocol is how the collector is spoken to: http/protobuf, which is the
	// default, or http/json. With grpc there are no traces.
	Protocol string `env:"EXPORTER_OTLP_PROTOCOL"`
	// TracesProtocol is the same for traces alone. It wins over Protocol.
	TracesProtocol string `env:"EXPORTER_OTLP_TRACES_PROTOCOL"`
	// Exporter turns traces off when it is none. With otlp they are on also
	// without an endpoint, which is then http://localhost:4318.
	Exporter string `env:"TRACES_EXPORTER"`
	// Disabled turns traces off when it is true, whatever else is set.
	Disabled string `env:"SDK_DISABLED"`
	// QueueSize is how many spans wait for the collector at most; what is above it
	// is dropped.
	QueueSize string `env:"BSP_MAX_QUEUE_SIZE, default=2048"`
}

// wanted reports whether there are traces. A doubt says why there are none
// although somebody seems to want them.
func (c *Config) wanted() (on bool, doubt string) {
	endpoint, variable := c.TracesEndpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	if endpoint == "" {
		endpoint, variable = c.Endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT"
	}
	protocol := c.TracesProtocol
	if protocol == "" {
		protocol = c.Protocol
	}
	switch {
	case strings.EqualFold(c.Disabled, "true"), c.Exporter == "none", c.Exporter == "" && endpoint == "":
		return false, ""
	case c.Exporter != "" && c.Exporter != "otlp":
		return false, fmt.Sprintf("OTEL_TRACES_EXPORTER is %q: want otlp or none", c.Exporter)
	case protocol != "" && protocol != "http/protobuf" && protocol != "http/json":
		return false, fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: want http/protobuf or http/json", protocol)
	case endpoint != "" && !isAddress(endpoint):
		return false, variable + " is not of the form http://host:port or https://host:port" // it may hold a password
	}
	return true, ""
}

func isAddress(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// queueSize is the number of QueueSize.
func (c *Config) queueSize() int {
	const usual = 2048 // OpenTelemetry's default
	if n, err := strconv.Atoi(c.QueueSize); err == nil && n > 0 {
		return n
	}
	return usual
}
