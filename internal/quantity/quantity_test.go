package quantity_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/quantity"
)

func TestMiB(t *testing.T) {
	for text, want := range map[string]int64{
		"0Mi":       0,
		"1Mi":       1,
		"512Mi":     512,
		"8Gi":       8192,
		"007Gi":     7168,
		"2Ti":       2097152,
		"2048Ki":    2,
		"8388607Ti": 8796091973632,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := quantity.MiB(text)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestMiBRefuses(t *testing.T) {
	const malformed = " is not a whole number followed by Ki, Mi, Gi or Ti, such as 512Mi or 8Gi"
	for text, want := range map[string]string{
		"":                       `quantity ""` + malformed,
		"Gi":                     `quantity "Gi"` + malformed,
		"8":                      `quantity "8"` + malformed,
		"8192":                   `quantity "8192"` + malformed,
		"8G":                     `quantity "8G"` + malformed,
		"8GB":                    `quantity "8GB"` + malformed,
		"8gi":                    `quantity "8gi"` + malformed,
		"-8Gi":                   `quantity "-8Gi"` + malformed,
		"+8Gi":                   `quantity "+8Gi"` + malformed,
		"1.5Gi":                  `quantity "1.5Gi"` + malformed,
		"8 Gi":                   `quantity "8 Gi"` + malformed,
		"1000Ki":                 `quantity "1000Ki" is not a whole number of MiB: write it in Mi, such as 512Mi`,
		"8388608Ti":              `quantity "8388608Ti" is too large: the largest is 8388607Ti`,
		"99999999999999999999Mi": `quantity "99999999999999999999Mi" is too large: the largest is 8388607Ti`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := quantity.MiB(text)
			require.EqualError(t, err, want)
		})
	}
}

func TestEveryUnitAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 8388607).Draw(t, "n")
		for unit, factor := range map[string]int64{"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024} {
			got, err := quantity.MiB(fmt.Sprintf("%d%s", n, unit))
			require.NoError(t, err)
			require.Equal(t, n*factor, got)
		}
	})
}
