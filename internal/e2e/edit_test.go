package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func jsonOf(text string, into any) error { return json.Unmarshal([]byte(text), into) }

func itoa(n int) string { return strconv.Itoa(n) }

func replaceInFile(t *testing.T, path, old, replacement string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), old)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, replacement, 1)), 0o600))
}

var workspaceLine = regexp.MustCompile(`workspace: .*`)

func replaceWorkspace(t *testing.T, path, workspace string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, workspaceLine.ReplaceAll(data, []byte("workspace: "+workspace)), 0o600))
}
