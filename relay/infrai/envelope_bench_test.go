package infrai

import "testing"

func BenchmarkDecodeEnvelope(b *testing.B) {
	const body = `{"ok":true,"data":{"message_id":"msg_00000000deadbeef"},"error":null,"metadata":{"cost_usd":0,` +
		`"latency_ms":0.05,"vendor":"emulator","cache_hit":false,"request_id":"01951234-5678-7abc-8def-0123456789ab"}}`
	b.ReportAllocs()
	for b.Loop() {
		if e, ok := decodeEnvelope(body); !ok || !e.ok {
			b.Fatal("not decoded")
		}
	}
}
