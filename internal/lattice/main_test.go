package lattice_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
)

// natsURL is the NATS server that the tests share; each has a lattice of its own.
var natsURL string

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(devstacktest.Main(m, func(s *devstack.Stack) { natsURL = s.NATSURL }, devstack.NATS))
}

// host1 is the host of most of what was captured.
const host1 = "NBLXKJH55FNWV4HFRTDF6ZD354X2YDBROJD2QJ7V5SRR42PZGQYJWG5X"

func annotations(scaler string) map[string]string {
	return map[string]string{
		"wasmcloud.dev/appspec": "shop-front", "wasmcloud.dev/managed-by": "wadm",
		"wasmcloud.dev/scaler": scaler, "wasmcloud.dev/spread_name": "default",
	}
}

// capturedLines returns the lines of a file of testdata that are not comments.
func capturedLines(t testing.TB, name string) []string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer f.Close()
	var lines []string
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := scanner.Text(); line != "" && !strings.HasPrefix(line, "# ") {
			lines = append(lines, line)
		}
	}
	require.NoError(t, scanner.Err())
	return lines
}

// capturedEvents returns the messages of all captured events.
func capturedEvents(t testing.TB) []string {
	t.Helper()
	var messages []string
	for _, line := range capturedLines(t, "events.txt") {
		if strings.HasPrefix(line, "{") {
			messages = append(messages, line)
		}
	}
	require.Len(t, messages, 25)
	return messages
}

// capturedReplies returns the captured answers by what was asked.
func capturedReplies(t testing.TB) map[string][]string {
	t.Helper()
	replies := map[string][]string{}
	asked := ""
	for _, line := range capturedLines(t, "replies.txt") {
		if name, is := strings.CutPrefix(line, "> "); is {
			asked = name
			continue
		}
		replies[asked] = append(replies[asked], line)
	}
	return replies
}
