package oam_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// BenchmarkParseAndValidate reads a typical document, of about 2 KB, and checks
// it.
func BenchmarkParseAndValidate(b *testing.B) {
	inYAML, err := os.ReadFile("testdata/full.yaml")
	require.NoError(b, err)
	document, err := oam.Parse(inYAML, oam.YAML)
	require.NoError(b, err)
	inJSON, err := document.Manifest.JSON()
	require.NoError(b, err)
	for _, text := range []struct {
		name   string
		src    []byte
		format oam.Format
	}{{"YAML", inYAML, oam.YAML}, {"JSON", inJSON, oam.JSON}, {"detected YAML", inYAML, oam.Detect}, {"detected JSON", inJSON, oam.Detect}} {
		b.Run(text.name, func(b *testing.B) {
			b.SetBytes(int64(len(text.src)))
			b.ReportAllocs()
			for b.Loop() {
				document, err := oam.Parse(text.src, text.format)
				if err != nil {
					b.Fatal(err)
				}
				if findings := document.Validate(); len(findings) != 0 {
					b.Fatal(findings)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "documents/s")
		})
	}
}
