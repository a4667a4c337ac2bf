package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintFamilies(t *testing.T) {
	f := family{title: "At the store.", of: "nodes", beyond: 100_000, curves: newCurves("a pass", " ms", "constant", " ms", "falling", "/s", "nothing", " %")}
	for _, n := range []int{10, 100, 1000, 10_000} {
		x := float64(n)
		f.add(n, sample{5 + x/10, 5 + x/10, 999}, sample{3}, sample{1e6 / x}, sample{0})
	}
	var out bytes.Buffer
	printFamilies(&out, []family{f})
	require.Equal(t, `At the store.

| measured with so many nodes | 10       | 100     | 1,000  | 10,000  | exponent (R²) | last step | calculated: 100,000 |
| --------------------------- | -------- | ------- | ------ | ------- | ------------- | --------- | ------------------- |
| a pass                      | 6 ms     | 15 ms   | 105 ms | 1005 ms | 0.75 (0.97)   | 0.98      | 9619 ms             |
| constant                    | 3 ms     | 3 ms    | 3 ms   | 3 ms    | 0.00 (1.00)   | 0.00      | 3 ms                |
| falling                     | 100000/s | 10000/s | 1000/s | 100/s   | -1.00 (1.00)  | -1.00     | 100/s               |
| nothing                     | 0 %      | 0 %     | 0 %    | 0 %     | – (–)         | –         | 0 %                 |
`, out.String())
}
