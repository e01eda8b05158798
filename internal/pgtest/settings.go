package pgtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// defaults are the server settings of every cluster; Options.Settings override
// them.
var defaults = map[string]string{
	"wal_level":                 "logical",
	"fsync":                     "off",
	"max_replication_slots":     "40",
	"max_wal_senders":           "40",
	"max_connections":           "200",
	"max_prepared_transactions": "5",
	"wal_sender_timeout":        "10s",
	// The smallest value: any larger transaction takes the path of huge ones.
	"logical_decoding_work_mem": "64kB",
	// Many clusters share one small machine.
	"shared_buffers": "32MB",
	"jit":            "off",
	// The log is for people who look into a failed test.
	"log_replication_commands": "on",
	"log_line_prefix":          "%m [%p] %q%u@%d %a ",
	"log_timezone":             "UTC",
	"timezone":                 "UTC",
	// Only the loopback interface; a socket's path can be too long for Postgres.
	"listen_addresses":        "127.0.0.1",
	"unix_socket_directories": "",
}

// quote doubles what has a meaning inside a quoted setting.
var quote = strings.NewReplacer(`'`, `''`, `\`, `\\`)

// configuration is the text of the settings for postgresql.conf.
func configuration(settings map[string]string, port int) string {
	all := maps.Clone(defaults)
	maps.Copy(all, settings)
	all["port"] = fmt.Sprint(port)

	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, quote.Replace(all[name]))
	}
	return text.String()
}
