package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 17: "17", 1234.5: "1234", 253.4: "253", 17.33: "17.3", 2.456: "2.46", 0.1: "0.10", 0.0123: "0.012",
	} {
		require.Equal(t, want, number(value))
	}
	require.Equal(t, "–", number(math.NaN()))
}

func TestSpread(t *testing.T) {
	require.Empty(t, spread(nil, "/s"))
	require.Equal(t, "17.3/s", spread(sample{17.3}, "/s"))
	require.Equal(t, "20/s (10–40)", spread(sample{40, 10, 20}, "/s"))
}

func TestTable(t *testing.T) {
	var out strings.Builder
	printTable(&out, newTable([]line{
		{measure: "place", figure: sample{20, 10}, unit: "/s", reference: "INSERT", known: sample{100, 100}, aim: atLeast(0.1)},
		{measure: "wait", figure: sample{31}, unit: " events", aim: atMost(30)},
		{measure: "freed", figure: sample{80}, unit: " ms", reference: "Nomad", known: sample{253}, aim: atMost(100), absolute: true},
		{measure: "memory", figure: sample{64}, unit: " MiB"},
	}))

	require.Equal(t, strings.TrimLeft(`
| measure | median (min–max) | reference | median (min–max) | ratio (min–max)    | aim         | met |
| ------- | ---------------- | --------- | ---------------- | ------------------ | ----------- | --- |
| place   | 15/s (10–20)     | INSERT    | 100/s (100–100)  | 0.15 × (0.10–0.20) | ≥ 0.10 ×    | yes |
| wait    | 31 events        |           |                  |                    | ≤ 30 events | no  |
| freed   | 80 ms            | Nomad     | 253 ms           | 0.32 ×             | ≤ 100 ms    | yes |
| memory  | 64 MiB           |           |                  |                    |             |     |
`, "\n"), out.String())
}
