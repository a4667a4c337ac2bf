package wadmapi_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/wadm"
)

// asking sends a request and returns the reply when there is one.
func asking(t *testing.T, a *api, subject, body string) <-chan string {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := a.conn.SubscribeSync(inbox)
	require.NoError(t, err)
	require.NoError(t, a.conn.PublishRequest("wadm.api.default."+subject, inbox, []byte(body)))
	require.NoError(t, a.conn.Flush())
	reply := make(chan string, 1)
	go func() {
		msg, err := sub.NextMsg(20 * time.Second)
		if err != nil {
			reply <- err.Error()
			return
		}
		reply <- string(msg.Data)
	}()
	return reply
}

func TestADatabaseThatComesBackInTime(t *testing.T) {
	var p *proxy
	a := startAPI(t, options{storeURL: func(dbURL string) (url string) { p, url = through(t, dbURL); return url }})
	a.put(t, manifest("shop", "v1"))
	p.cut()
	replies := map[string]<-chan string{}
	for subject, body := range map[string]string{
		"model.list": "", "model.get": "", "model.get.shop": "", "model.put": manifest("shop", "v2"), "model.versions.shop": "",
		"model.deploy.shop": `{"version":"v1"}`, "model.status.shop": "", "model.undeploy.other": "", "model.del.other": "",
	} {
		replies[subject] = asking(t, a, subject, body)
	}
	select {
	case early := <-replies["model.list"]:
		require.Fail(t, "answered without a database", early)
	case <-time.After(500 * time.Millisecond):
	}
	p.mend()
	for subject, reply := range replies {
		require.NotContains(t, <-reply, `"error"`, subject)
	}
	require.Equal(t, []wadm.VersionInfo{{Version: "v1", Deployed: true}, {Version: "v2"}},
		[]wadm.VersionInfo(read[wadm.VersionsReply](t, a, "model.versions.shop", "").Versions))
}

func TestADatabaseThatStaysAway(t *testing.T) {
	t.Parallel()
	var p *proxy
	a := startAPI(t, options{storeURL: func(dbURL string) (url string) { p, url = through(t, dbURL); return url }})
	a.put(t, manifest("shop", "v1"))
	p.cut()
	const unreachable = "the storage is unreachable (unavailable); ask again"
	const unknown = "the storage is unreachable (unavailable); it may have been done or not: look before you ask again"
	began := time.Now()
	replies := map[string]<-chan string{}
	for subject := range map[string]string{
		"model.list": "", "model.get": "", "model.get.shop": "", "model.versions.shop": "", "model.deploy.shop": "",
		"model.status.shop": "", "model.undeploy.shop": "", "model.del.shop": "",
	} {
		replies[subject] = asking(t, a, subject, "")
	}
	replies["model.put"] = asking(t, a, "model.put", manifest("shop", "v2"))
	for subject, want := range map[string]string{
		"model.list":          `{"result":"error","message":"` + unreachable + `"}`,
		"model.get":           `{"result":"error","message":"` + unreachable + `","models":[]}`,
		"model.get.shop":      `{"result":"error","message":"` + unreachable + `"}`,
		"model.put":           `{"result":"error","message":"` + unknown + `"}`,
		"model.versions.shop": `{"result":"error","message":"` + unreachable + `","versions":[]}`,
		"model.status.shop":   `{"result":"error","message":"` + unreachable + `"}`,
		"model.deploy.shop":   `{"result":"error","message":"` + unknown + `","name":"shop","version":null}`,
		"model.undeploy.shop": `{"result":"error","message":"` + unknown + `","name":"shop","version":null}`,
		"model.del.shop":      `{"result":"error","message":"` + unknown + `","undeploy":false}`,
	} {
		require.Equal(t, want, <-replies[subject], subject)
	}
	require.InDelta(t, 8, time.Since(began).Seconds(), 1.5, "before clients give up, which they do after 10 s")
	p.mend()
	require.Equal(t, "success", read[wadm.ListReply](t, a, "model.get", "").Result)
}

// The answer of the database to a put is lost after it was committed: the put is
// repeated as the same one, and its client hears of one success.
func TestALostAnswerOfTheDatabase(t *testing.T) {
	var p *proxy
	a := startAPI(t, options{storeURL: func(dbURL string) (url string) { p, url = through(t, dbURL); return url }})
	a.put(t, manifest("shop", "v1"))
	committed := make(chan error, 1)
	p.loseAnswer("version-of-the-test", func() {
		for {
			var n int
			err := a.db.QueryRow(t.Context(), `SELECT count(*) FROM application_versions WHERE version = 'version-of-the-test'`).Scan(&n)
			if err != nil || n == 1 {
				committed <- err
				return
			}
		}
	})
	reply := a.put(t, manifest("shop", "version-of-the-test"))
	require.NoError(t, <-committed)
	require.Equal(t, wadm.PutReply{
		Result: "newversion", TotalVersions: 2, CurrentVersion: "version-of-the-test", Message: "stored shop version-of-the-test", Name: "shop",
	}, reply)
	require.Contains(t, a.ask(t, "model.put", manifest("shop", "version-of-the-test"), nil), "already exists", "another put is another one")
}
