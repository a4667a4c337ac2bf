package mission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

// FuzzParse wants no panic, an answer in bounded time, findings that point into
// the text, and a mission that is read the same twice.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		smallest, largest, smallest + "      secrets: [{name: A, from: file:a}, {name: A, from: ~}, [x], {from: 1}]\n", "", "a: &a [*a]", "{\"a\": [1, {}]}", "? [a]\n: b\n", "<<: *x", "a: !!binary x", "- |\n  x\n--- \n...",
		"apiVersion: tidewait/v1\nkind: Mission\nmetadata: ~\nspec: {phases: [[], {}, {run: 1}]}\n", "\xef\xbb\xbfa: 1", "a: !!float x\n#c\n\t",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		began := time.Now()
		m, err := mission.Parse("f", src)
		require.Less(t, time.Since(began), 5*time.Second)
		if err == nil {
			again, err := mission.Parse("f", src)
			require.NoError(t, err)
			require.Equal(t, m.Digest(), again.Digest())
			return
		}
		var invalid *mission.Invalid
		require.ErrorAs(t, err, &invalid)
		require.NotEmpty(t, invalid.Findings)
		require.NotEmpty(t, invalid.Error())
		for _, finding := range invalid.Findings {
			require.Positive(t, finding.Line)
			require.Positive(t, finding.Column)
			require.NotEmpty(t, finding.Found)
			require.NotEmpty(t, finding.Problem)
		}
	})
}
