package source_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/secret/seal"
	"tidewait/internal/secret/source"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), mode))
	require.NoError(t, os.Chmod(path, mode), "whatever the umask")
}

func resolve(t *testing.T, s source.Sources, from ...string) ([]string, error) {
	t.Helper()
	var refs []source.Ref
	for i, f := range from {
		refs = append(refs, source.Ref{Name: "S" + strconv.Itoa(i), From: f})
	}
	secrets, err := s.Resolve(t.Context(), refs)
	var values []string
	for i, secret := range secrets {
		require.Equal(t, refs[i].Name, secret.Name)
		values = append(values, secret.Value)
	}
	return values, err
}

func TestSecretsFromEverywhere(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	write(t, filepath.Join(dir, "api-token"), "from a file\n", 0o600)
	write(t, filepath.Join(dir, "windows"), "one\r\ntwo\r\n", 0o440)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..data"), 0o700))
	write(t, filepath.Join(dir, "..data", "linked"), "behind a link", 0o600)
	require.NoError(t, os.Symlink("..data/linked", filepath.Join(dir, "linked")))
	t.Setenv("TW_TEST_SECRET", " from a variable ")
	s := source.Sources{
		Dir: dir, Env: []string{"TW_TEST_SECRET"}, Time: 10 * time.Second,
		Commands: map[string][]string{"say": {"/bin/echo", "from", "a  command"}, "quiet": {"/bin/sh", "-c", "echo out; echo err >&2"}},
	}

	values, err := resolve(t, s, "file:api-token", "env:TW_TEST_SECRET", "command:say", "file:windows", "file:linked", "command:quiet", "file:api-token")

	require.NoError(t, err)
	require.Equal(t, []string{"from a file", " from a variable ", "from a  command", "one\r\ntwo", "behind a link", "out", "from a file"}, values)
}

func TestWhatIsNotGivenAway(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	write(t, filepath.Join(outside, "target"), "do not show", 0o600)
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"world": {"do not show", 0o604}, "group-writes": {"do not show", 0o620}, "empty": {"", 0o600}, "newline": {"\n", 0o600},
		"zero": {"do not\x00show", 0o600}, "latin1": {"caf\xe9 do not show", 0o600}, "large": {strings.Repeat("x", 64<<10) + "y", 0o600},
		"full": {strings.Repeat("x", 64<<10) + "\n", 0o600},
	} {
		write(t, filepath.Join(dir, name), c.content, c.mode)
	}
	require.NoError(t, os.Symlink(filepath.Join(outside, "target"), filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("../"+filepath.Base(outside)+"/target", filepath.Join(dir, "relative-out")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	t.Setenv("TW_TEST_SECRET", "do not show")
	t.Setenv("TW_TEST_EMPTY", "")
	s := source.Sources{
		Dir: dir, Env: []string{"TW_TEST_EMPTY", "TW_TEST_NOT_SET"}, Time: 300 * time.Millisecond,
		Commands: map[string][]string{
			"fails": {"/bin/sh", "-c", "echo do not show; echo do not show >&2; exit 3"}, "signal": {"/bin/sh", "-c", "kill -9 $$"},
			"slow": {"/bin/sleep", "600"}, "slow-child": {"/bin/sh", "-c", "sleep 600 & wait"}, "missing": {"/nowhere/vault"},
			"loud": {"/bin/sh", "-c", "while :; do echo do not show; done"}, "silent": {"/bin/true"},
		},
	}
	const inDir = "the gateway's directory of secrets"
	for from, why := range map[string]string{
		"file:none":           "is not in " + inDir,
		"file:dangling":       "is not in " + inDir,
		"file:out":            "cannot be read: it is no file of " + inDir,
		"file:relative-out":   "cannot be read: it is no file of " + inDir,
		"file:directory":      "is not a regular file",
		"file:pipe":           "is not a regular file",
		"file:world":          "is not safe: its mode is 0604, so that others may read or change it; make it 0600",
		"file:group-writes":   "is not safe: its mode is 0620, so that others may read or change it; make it 0600",
		"file:empty":          "is empty",
		"file:newline":        "is empty",
		"file:zero":           "is not text, which a variable has to be; keep it in base64",
		"file:latin1":         "is not text, which a variable has to be; keep it in base64",
		"file:large":          "is larger than 64 KiB",
		"env:TW_TEST_SECRET":  "may not be given away: the gateway's gateway.secret_env does not name it",
		"env:TW_TEST_NOT_SET": "is not set in the environment of the gateway",
		"env:TW_TEST_EMPTY":   "is empty",
		"command:none":        "may not be run: the gateway's gateway.secret_commands does not name it",
		"command:fails":       "failed: the command exited with code 3",
		"command:signal":      "failed: the command was ended by a signal",
		"command:slow":        "did not end within 300ms",
		"command:slow-child":  "did not end within 300ms",
		"command:missing":     "failed: the command cannot be started",
		"command:loud":        "printed more than 64 KiB",
		"command:silent":      "is empty",
	} {
		t.Run(from, func(t *testing.T) {
			began := time.Now()
			values, err := resolve(t, s, from)
			require.EqualError(t, err, "secret S0 is not available: "+from+" "+why)
			require.Nil(t, values)
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
	for _, from := range []string{"file:../target", "file:/etc/passwd", "file:", "do not show", "command:sh -c id"} {
		t.Run(from, func(t *testing.T) {
			_, err := resolve(t, s, from)
			require.EqualError(t, err, "secret S0 is not available: what the document says names no file, variable or command")
		})
	}
	values, err := resolve(t, s, "file:full")
	require.NoError(t, err, "the newline at its end is not part of it")
	require.Len(t, values[0], 64<<10)
	_, err = resolve(t, s, "file:full", "file:full", "file:full")
	require.EqualError(t, err, "secret S2 is not available: file:full makes the secrets of this run larger than 128 KiB together")
}

func TestAGatewayWithoutSecrets(t *testing.T) {
	var s source.Sources
	for from, want := range map[string]string{
		"file:a":    "file:a may not be given away: the gateway has no directory of secrets, which gateway.secret_dir would name",
		"env:HOME":  "env:HOME may not be given away: the gateway's gateway.secret_env does not name it",
		"command:a": "command:a may not be run: the gateway's gateway.secret_commands does not name it",
	} {
		_, err := resolve(t, s, from)
		require.EqualError(t, err, "secret S0 is not available: "+want)
	}
	got, err := s.Resolve(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []seal.Secret{}, got)
}

func TestADirectoryThatOthersMayWriteTo(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "value", 0o600)
	s := source.Sources{Dir: dir}
	for mode, why := range map[os.FileMode]string{
		0o700: "", 0o750: "", 0o755: "",
		0o777: "is not trusted: others may write to the gateway's directory of secrets; take that from them, as with chmod go-w",
		0o770: "is not trusted: others may write to the gateway's directory of secrets; take that from them, as with chmod go-w",
	} {
		require.NoError(t, os.Chmod(dir, mode))
		values, err := resolve(t, s, "file:a")
		if why == "" {
			require.NoError(t, err)
			require.Equal(t, []string{"value"}, values)
		} else {
			require.EqualError(t, err, "secret S0 is not available: file:a "+why)
		}
	}
	_, err := resolve(t, source.Sources{Dir: filepath.Join(dir, "none")}, "file:a")
	require.EqualError(t, err, "secret S0 is not available: file:a cannot be read: the gateway's directory of secrets cannot be opened")
}

// TestACommandThatIsCancelled leaves no process behind.
func TestACommandThatIsCancelled(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pid")
	s := source.Sources{
		Time:     time.Hour,
		Commands: map[string][]string{"slow": {"/bin/sh", "-c", "sleep 600 & echo $! > " + pids + ".new; mv " + pids + ".new " + pids + "; wait"}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Resolve(ctx, []source.Ref{{Name: "A", From: "command:slow"}})
		done <- err
	}()
	var pid int
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(pids)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Eventually(t, func() bool {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	}, 30*time.Second, 5*time.Millisecond, "what the command started is gone")
}

func TestTooManyAreRefused(t *testing.T) {
	_, err := source.Sources{}.Resolve(t.Context(), make([]source.Ref, 33))
	require.EqualError(t, err, "33 secrets were asked for; a command has at most 32")
}
