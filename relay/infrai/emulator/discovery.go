package emulator

import (
	"net/http"
	"strings"
)

// discover describes the routes, without an envelope, as the real queue does.
func (s *Server) discover(c *call) answer {
	name := strings.Trim(strings.TrimPrefix(c.request.URL.Path, discoveryPath), "/")
	if name == "" {
		return answer{status: http.StatusOK, bare: true, data: appendIndex(nil)}
	}
	for _, r := range routes {
		if r.id == name {
			return answer{status: http.StatusOK, bare: true, data: r.appendCapability(nil, c.settings)}
		}
	}
	return refuse(http.StatusNotFound, "CAPABILITY_NOT_FOUND", "no such capability")
}

func appendIndex(b []byte) []byte {
	b = append(b, `{"capabilities":[`...)
	for i, r := range routes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(r.appendHead(b), '}')
	}
	return append(b, "]}"...)
}

// appendHead appends the open object that index and capability share.
func (r *route) appendHead(b []byte) []byte {
	path := r.path
	if r.names != "" {
		path += "{" + r.names + "}"
	}
	b = append(b, `{"id":"`+r.id+`","method":"`+r.method+`","path":"`+path+`","available":true,"idempotent":`...)
	if r.idempotent {
		b = append(b, "true"...)
	} else {
		b = append(b, "false"...)
	}
	b = append(b, `,"summary":`...)
	return appendString(b, r.summary)
}

func (r *route) appendCapability(b []byte, settings *Settings) []byte {
	b = append(r.appendHead(b), `,"params":`...)
	if settings.DiscoveryParams == "fields" {
		return append(r.appendProperties(b), '}')
	}
	b = append(b, `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":`...)
	b = append(r.appendProperties(b), `,"required":[`...)
	comma := false
	for _, f := range r.fields {
		if !f.required {
			continue
		}
		if comma {
			b = append(b, ',')
		}
		b, comma = appendString(b, f.name), true
	}
	b = append(b, `],"additionalProperties":`...)
	if settings.UnknownFields == "reject" {
		b = append(b, "false}}"...)
	} else {
		b = append(b, "true}}"...)
	}
	return b
}

func (r *route) appendProperties(b []byte) []byte {
	b = append(b, '{')
	comma := false
	for _, f := range r.fields {
		if f.invented {
			continue
		}
		if comma {
			b = append(b, ',')
		}
		b, comma = append(appendString(b, f.name), ':'), true
		b = append(b, f.schema...)
	}
	return append(b, '}')
}
