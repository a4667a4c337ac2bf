package guest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// execSaying lets a guest answer EXEC with one frame.
func execSaying(t *testing.T, kind Kind, payload string) (vm.Exit, error) {
	t.Helper()
	s := guestSays(t, func(c *Conn) {
		_, _, _ = c.Read()
		_ = c.Write(kind, []byte(payload))
	})
	return s.Exec(t.Context(), Exec{}, 0, nil)
}

func TestExitsThatCannotBe(t *testing.T) {
	for payload, want := range map[string]string{
		`{"code":-1}`:                     "a command cannot exit with code -1",
		`{"code":256}`:                    "a command cannot exit with code 256",
		`{"code":1099511627776}`:          "a command cannot exit with code 1099511627776",
		`{"signal":"\u0000"}`:             `"\x00" is no signal`,
		`{"signal":"sigkill"}`:            `"sigkill" is no signal`,
		`{"code":"0"}`:                    "EXIT",
		`{"code":9999999999999999999999}`: "EXIT",

		`{"signal":"` + strings.Repeat("SIG", 10_000) + `"}`: "is no signal",

		strings.Repeat("[", 1<<16) + strings.Repeat("]", 1<<16): "EXIT",

		``: "EXIT",
	} {
		_, err := execSaying(t, KindExit, payload)
		requireCode(t, err, vm.MachineDied, want)
	}
	for payload, want := range map[string]vm.Exit{
		`{"code":255}`: {Code: 255}, `{"signal":"SIGSEGV"}`: {Signal: "SIGSEGV"}, `{"signal":"SIG34"}`: {Signal: "SIG34"},
		`{"signal":"SIGKILL","oom":true,"more":[1]}`: {Signal: "SIGKILL", OOM: true},
	} {
		got, err := execSaying(t, KindExit, payload)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestFailuresThatAreNotTheGuests lets a guest claim what only others can know.
func TestFailuresThatAreNotTheGuests(t *testing.T) {
	for _, code := range []string{"", "turn_exceeded", "cancelled", "capacity_memory", "step_timeout", "machine_died", "out_of_memory", "succeeded", "boot_failed", "collect_failed"} {
		_, err := execSaying(t, KindFail, `{"code":"`+code+`","message":"believe me"}`)
		requireCode(t, err, vm.MachineDied, `FAIL has the code "`+code+`", which is not the guest's to give`)
	}
	_, err := execSaying(t, KindFail, `{"code":"command_not_found","message":"no\u0000such\u001b[31m\ncommand é"}`)
	requireCode(t, err, vm.CommandNotFound, "no?such?[31m?command é")
	_, err = execSaying(t, KindFail, `{"code":"command_not_found","message":"`+strings.Repeat("é", 300_000)+`"}`)
	requireCode(t, err, vm.CommandNotFound, "éé")
	require.Len(t, err.Error(), 1<<10+len("…"))
}

func TestGreetingsThatCannotBeKept(t *testing.T) {
	for hello, want := range map[string]string{
		`{"proto":2,"kernel":"6.1\u0000"}`:                            `the guest says its kernel is "6.1\x00"`,
		`{"proto":2,"kernel":"` + strings.Repeat("6", 200_000) + `"}`: "the guest says its kernel is ",
		`[]`: "HELLO",
	} {
		ours := readOnly{strings.NewReader(string(framed(KindHello, []byte(hello))))}
		_, err := Open(t.Context(), ours)
		requireCode(t, err, vm.MachineDied, want)
	}
}

// TestDeletionsThatDoNotFit lists more names than a result can carry, in few
// deletions.
func TestDeletionsThatDoNotFit(t *testing.T) {
	names := `["` + strings.Repeat(`d/`, 1000) + `x"` + strings.Repeat(`,"`+strings.Repeat(`d/`, 1000)+`x"`, 299) + `]`
	frame := framed(KindDeleted, []byte(names))
	_, err := collectFrom(t, vm.Limits{Files: 3, Bytes: 100}, framed(KindTar, archive(t)), frame, frame, frame, framed(KindTarEnd, []byte(`{"deleted":900}`)))
	requireCode(t, err, vm.ResultsTooLarge, "the names of the deleted files take more than 1572864 bytes")
}
