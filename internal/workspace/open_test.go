package workspace_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

func TestOpenBundleIsIdempotent(t *testing.T) {
	g := newGateway(t, workspace.Options{})
	dir := repository(t, small)
	first := gitIn(t, dir, "rev-parse", "HEAD")
	require.Equal(t, workspace.Checkout{Base: first, Branch: "tidewait/port/1", Head: first}, openLaunch(t, g, dir, 1))

	result, err := g.Commit(t.Context(), request(first, "r1", tarOf(file("a", "1"))))
	require.NoError(t, err)
	write(t, dir, files{"new": "new\n"})
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-q", "-m", "second")
	second := gitIn(t, dir, "rev-parse", "HEAD")

	// Launch 1 is what it was; launch 2 starts where the repository is now.
	require.Equal(t, workspace.Checkout{Base: first, Branch: "tidewait/port/1", Head: result.Commit}, openLaunch(t, g, dir, 1))
	require.Equal(t, workspace.Checkout{Base: second, Branch: "tidewait/port/2", Head: second}, openLaunch(t, g, dir, 2))
}

func TestConcurrentOpens(t *testing.T) {
	g := newGateway(t, workspace.Options{})
	dir := repository(t, small)
	var bundle bytes.Buffer
	b, err := workspace.BundleRepo(t.Context(), dir, "", &bundle)
	require.NoError(t, err)
	const opens = 6
	checkouts, errs := make([]workspace.Checkout, opens), make([]error, opens)
	var wg sync.WaitGroup
	for i := range opens {
		wg.Go(func() {
			checkouts[i], errs[i] = g.Open(t.Context(), workspace.OpenRequest{
				Mission: "port", Launch: 1 + i%2, Bundle: bytes.NewReader(bundle.Bytes()), SHA256: b.SHA256, Head: b.Head,
			})
		})
	}
	wg.Wait()
	for i := range opens {
		require.NoError(t, errs[i])
		require.Equal(t, workspace.Checkout{Base: b.Head, Branch: fmt.Sprintf("tidewait/port/%d", 1+i%2), Head: b.Head}, checkouts[i])
	}
}

func TestOpenRefusesDamagedBundles(t *testing.T) {
	dir := repository(t, small)
	var bundle bytes.Buffer
	b, err := workspace.BundleRepo(t.Context(), dir, "main", &bundle)
	require.NoError(t, err)
	cut := bundle.Bytes()[:bundle.Len()-30]
	gitfile := []byte("gitdir: " + dir + "/.git\n")
	other := strings.Repeat("0123456789", 4)
	for name, c := range map[string]struct {
		bundle       []byte
		digest, head string
		want         string
	}{
		"digest":  {bundle.Bytes(), digest(nil), b.Head, "the bundle has the SHA-256 " + b.SHA256 + ", not " + digest(nil) + " as was announced; launch again"},
		"head":    {bundle.Bytes(), b.SHA256, other, "the bundle holds commit " + b.Head[:12] + ", not " + other[:12] + " as was announced; launch again"},
		"cut off": {cut, digest(cut), b.Head, "the bundle cannot be read: early EOF"},
		"no git":  {[]byte("hello"), digest([]byte("hello")), b.Head, "what was received is not a git bundle"},
		"gitfile": {gitfile, digest(gitfile), b.Head, "what was received is not a git bundle"},
		"empty":   {nil, digest(nil), b.Head, "what was received is not a git bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			g, err := workspace.New(root, workspace.Options{})
			require.NoError(t, err)
			_, err = g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 1, Bundle: bytes.NewReader(c.bundle), SHA256: c.digest, Head: c.head})
			requireRefused(t, err, "workspace_damaged", c.want)
			require.Empty(t, gitIn(t, filepath.Join(root, "missions", "port.git"), "for-each-ref"))
			_, err = g.Log(t.Context(), "port", 1)
			requireRefused(t, err, "workspace_missing", "this gateway has no checkout of launch 1 of mission port")
		})
	}
}

func TestOpenPathUnderARoot(t *testing.T) {
	root := t.TempDir()
	source := repository(t, small)
	require.NoError(t, os.Rename(source, filepath.Join(root, "port repo")))
	source = filepath.Join(root, "port repo")
	gitIn(t, source, "tag", "-a", "v1", "-m", "annotated")
	gitIn(t, source, "commit", "-q", "--allow-empty", "-m", "second")
	gitIn(t, source, "branch", "feature/x")
	first, second := gitIn(t, source, "rev-parse", "v1^{commit}"), gitIn(t, source, "rev-parse", "HEAD")
	g := newGateway(t, workspace.Options{Protocols: []string{"file"}, Roots: []string{root}})
	launch := 0
	for ref, want := range map[string]string{"": second, "HEAD": second, "main": second, "feature/x": second, "refs/heads/main": second, "v1": first, second: second} {
		t.Run(ref, func(t *testing.T) {
			launch++
			checkout, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: launch, URL: "file://" + filepath.ToSlash(root) + "/port%20repo", Ref: ref})
			require.NoError(t, err)
			require.Equal(t, want, checkout.Base)
		})
	}
	checkout, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 100, URL: source})
	require.NoError(t, err)
	require.Equal(t, second, checkout.Base)
}

func TestOpenRefusals(t *testing.T) {
	root, outside := t.TempDir(), repository(t, small)
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "sneaky")))
	write(t, root, files{"plain/file": ""})
	empty := filepath.Join(root, "empty")
	require.NoError(t, os.Mkdir(empty, 0o755))
	gitIn(t, empty, "init", "-q")
	write(t, root, files{"full/x": ""})
	gitIn(t, filepath.Join(root, "full"), "init", "-q", "-b", "main")
	gitIn(t, filepath.Join(root, "full"), "add", "x")
	gitIn(t, filepath.Join(root, "full"), "commit", "-q", "-m", "x")
	blob := gitIn(t, filepath.Join(root, "full"), "rev-parse", "HEAD:x")
	gitIn(t, filepath.Join(root, "full"), "tag", "blob", blob)

	marker := filepath.Join(t.TempDir(), "ran")
	closed := closedPort(t)
	unknown := strings.Repeat("0123456789", 4)
	for name, c := range map[string]struct {
		url, ref string
		code     workspace.Code
		want     string
	}{
		"empty":                 {"", "", "workspace_bad_url", `"" is empty; name a repository by a URL`},
		"helper":                {"ext::sh -c touch% " + marker, "", "workspace_bad_url", `"ext::sh -c touch% ` + marker + `" names a transport helper, which is never run; name a repository by a URL`},
		"fd helper":             {"fd::17", "", "workspace_bad_url", `"fd::17" names a transport helper, which is never run; name a repository by a URL`},
		"option":                {"--upload-pack=touch " + marker, "", "workspace_bad_url", `"--upload-pack=touch ` + marker + `" starts with a dash; name a repository by a URL`},
		"protocol":              {"git://example.org/x", "", "workspace_bad_url", `"git://example.org/x" uses the protocol git, which is not allowed; this gateway allows file, http, ssh`},
		"protocol in capitals":  {"FILE:///etc", "", "workspace_bad_url", `"FILE:///etc" uses the protocol FILE, which is not allowed; this gateway allows file, http, ssh`},
		"https not here":        {"https://example.org/x", "", "workspace_bad_url", `"https://example.org/x" uses the protocol https, which is not allowed; this gateway allows file, http, ssh`},
		"ssh option":            {"ssh://-oProxyCommand=touch " + marker + "/x", "", "workspace_bad_url", `"ssh://-oProxyCommand=touch ` + marker + `/x" has a host that starts with a dash`},
		"ssh option after user": {"me@-oProxyCommand=x:y", "", "workspace_bad_url", `"me@-oProxyCommand=x:y" has a host that starts with a dash`},
		"password":              {"https://me:secret@example.org/x", "", "workspace_bad_url", `"https://me:...@example.org/x" contains a password; name a repository by a URL`},
		"control":               {"https://example.org/\nx", "", "workspace_bad_url", `"https://example.org/\nx" contains a control character; name a repository by a URL`},
		"relative":              {"./repo", "", "workspace_bad_url", `"./repo" is a relative path, which a gateway cannot see; launch it from where it is`},
		"outside":               {outside, "", "workspace_bad_url", `"` + outside + `" lies outside of the directories this gateway may read`},
		"outside as URL":        {"file://" + outside, "", "workspace_bad_url", `"` + outside + `" lies outside of the directories this gateway may read`},
		"outside by dots":       {root + "/../../../etc", "", "workspace_bad_url", `"` + root + `/../../../etc" lies outside of the directories this gateway may read`},
		"outside by a link":     {root + "/sneaky", "", "workspace_bad_url", `"` + root + `/sneaky" lies outside of the directories this gateway may read`},
		"beside the root":       {root + "x", "", "workspace_bad_url", `"` + root + `x" lies outside of the directories this gateway may read`},
		"file with a host":      {"file://host/x", "", "workspace_bad_url", `"file://host/x" names no path; write file:///PATH`},
		"absent":                {root + "/absent", "", "workspace_unreadable", `"` + root + `/absent" cannot be read: there is no such directory`},
		"no repository":         {root + "/plain", "", "workspace_unreadable", `cannot fetch ` + root + `/plain: '` + root + `/plain' does not appear to be a git repository`},
		"empty repository":      {empty, "", "workspace_bad_ref", empty + ` has no branch, tag or commit HEAD`},
		"ref absent":            {root + "/full", "nope", "workspace_bad_ref", root + `/full has no branch, tag or commit nope`},
		"commit absent":         {root + "/full", unknown, "workspace_bad_ref", root + `/full has no branch, tag or commit ` + unknown},
		"ref of a file":         {root + "/full", "blob", "workspace_bad_ref", `blob of ` + root + `/full is not a commit`},
		"ref an option":         {root + "/full", "--upload-pack=x", "workspace_bad_ref", `"--upload-pack=x" starts with a dash; name a branch, a tag or a full commit id`},
		"ref a refspec":         {root + "/full", "main:refs/heads/x", "workspace_bad_ref", `"main:refs/heads/x" contains a character that no ref may have; name a branch, a tag or a full commit id`},
		"ref all":               {root + "/full", "refs/heads/*", "workspace_bad_ref", `"refs/heads/*" contains a character that no ref may have; name a branch, a tag or a full commit id`},
		"nobody listens":        {"http://" + closed + "/x", "", "workspace_unreadable", `cannot fetch http://` + closed + `/x: unable to access 'http://` + closed + `/x/': Failed to connect to 127.0.0.1 port ` + strings.TrimPrefix(closed, "127.0.0.1:") + ` after N ms: Couldn't connect to server`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, workspace.Options{Protocols: []string{"file", "http", "ssh"}, Roots: []string{root}})
			_, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 1, URL: c.url, Ref: c.ref})
			requireRefused(t, err, c.code, c.want)
		})
	}
	require.NoFileExists(t, marker)

	t.Run("paths not allowed", func(t *testing.T) {
		g := newGateway(t, workspace.Options{Roots: []string{root}})
		_, err := g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: 1, URL: root + "/full"})
		requireRefused(t, err, "workspace_bad_url", `"`+root+`/full" is a path, and the protocol file is not allowed; this gateway allows https, ssh`)
	})
	t.Run("mission", func(t *testing.T) {
		_, err := newGateway(t, workspace.Options{}).Open(t.Context(), workspace.OpenRequest{Mission: "../x", Launch: 1, URL: "https://example.org/x"})
		requireRefused(t, err, "workspace_missing", `"../x" is not a mission's name`)
	})
	t.Run("launch", func(t *testing.T) {
		_, err := newGateway(t, workspace.Options{}).Open(t.Context(), workspace.OpenRequest{Mission: "port", URL: "https://example.org/x"})
		requireRefused(t, err, "workspace_missing", `0 is not a launch's number`)
	})
	t.Run("root", func(t *testing.T) {
		_, err := workspace.New(t.TempDir(), workspace.Options{Roots: []string{"/absent/root"}})
		require.EqualError(t, err, "workspace root /absent/root: lstat /absent: no such file or directory")
	})
}

func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// TestOpenOverHTTP fetches from a real server of static files, with a setting
// the gateway passes on, and refuses to be redirected to another protocol.
func TestOpenOverHTTP(t *testing.T) {
	source := repository(t, small)
	gitIn(t, source, "update-server-info")
	var mu sync.Mutex
	agents := map[string]bool{}
	static := http.FileServer(http.Dir(filepath.Join(source, ".git")))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		agents[r.UserAgent()] = true
		mu.Unlock()
		switch {
		case strings.HasPrefix(r.URL.Path, "/repo"):
			http.StripPrefix("/repo", static).ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/redirect"):
			http.Redirect(w, r, "file://"+source, http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/private"):
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	g := newGateway(t, workspace.Options{Protocols: []string{"http"}, GitConfig: []string{"http.userAgent=tidewait-test"}})
	open := func(launch int, path string) (workspace.Checkout, error) {
		return g.Open(t.Context(), workspace.OpenRequest{Mission: "port", Launch: launch, URL: server.URL + path, Ref: "main"})
	}

	checkout, err := open(1, "/repo")
	require.NoError(t, err)
	require.Equal(t, gitIn(t, source, "rev-parse", "main"), checkout.Base)
	mu.Lock()
	require.Equal(t, map[string]bool{"tidewait-test": true}, agents)
	mu.Unlock()

	_, err = open(2, "/absent")
	requireRefused(t, err, "workspace_unreadable", "cannot fetch "+server.URL+"/absent: repository '"+server.URL+"/absent/' not found")
	_, err = open(2, "/private")
	requireRefused(t, err, "workspace_unreadable", "cannot fetch "+server.URL+"/private: could not read Username for '"+server.URL+"': terminal prompts disabled")
	_, err = open(2, "/redirect")
	var refused *workspace.Refused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, workspace.Unreadable, refused.Code)
}
