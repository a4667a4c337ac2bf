package payload_test

import (
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"

	"tidewait/internal/payload"
)

// BenchmarkPayload encrypts and decrypts a payload of 4 KiB, which is more than the
// input of a run has.
func BenchmarkPayload(b *testing.B) {
	c, err := payload.NewCodec(keys(b, "k1"), true)
	if err != nil {
		b.Fatal(err)
	}
	in := []*commonpb.Payload{plain(strings.Repeat("x", 4<<10))}
	secret, err := c.Encode(in)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Encode(in); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Decode(secret); err != nil {
				b.Fatal(err)
			}
		}
	})
}
