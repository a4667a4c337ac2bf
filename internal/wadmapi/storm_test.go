package wadmapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/wadm"
)

// stormClient makes requests until they are answered, and keeps every inbox to
// see what else comes there.
type stormClient struct {
	conn    *nats.Conn
	inboxes []*nats.Subscription
	lost    int // requests that nobody answered
}

func (c *stormClient) ask(subject, body string) (reply string, tries int, err error) {
	for tries = 1; tries < 10; tries++ {
		inbox := nats.NewInbox()
		sub, err := c.conn.SubscribeSync(inbox)
		if err != nil {
			return "", tries, err
		}
		c.inboxes = append(c.inboxes, sub)
		if err := c.conn.PublishRequest("wadm.api.default."+subject, inbox, []byte(body)); err != nil {
			return "", tries, err
		}
		msg, err := sub.NextMsg(3 * time.Second)
		if err == nil {
			return string(msg.Data), tries, nil
		}
		c.lost++
	}
	return "", tries, fmt.Errorf("nobody answers %s", subject)
}

// want asks for something whose reply has a certain text.
func (c *stormClient) want(subject, body, text string) error {
	reply, _, err := c.ask(subject, body)
	if err == nil && !strings.Contains(reply, text) {
		err = fmt.Errorf("%s %s: want %s in %s", subject, body, text, reply)
	}
	return err
}

// put stores a version. What was tried before and not answered may be stored.
func (c *stormClient) put(name, version string) error {
	reply, tries, err := c.ask("model.put", manifest(name, version))
	if err != nil || tries > 1 && strings.Contains(reply, "already exists") {
		return err
	}
	var put wadm.PutReply
	if err := json.Unmarshal([]byte(reply), &put); err != nil || put.CurrentVersion != version {
		return fmt.Errorf("put %s of %s: %s", version, name, reply)
	}
	return nil
}

// work puts, deploys and reads versions of an application of its own and of one
// that all share.
func (c *stormClient) work(i, rounds int, finished func()) error {
	own := fmt.Sprintf("own-%d", i)
	for round := range rounds {
		version := fmt.Sprintf("v%02d", round)
		if err := c.put(own, version); err != nil {
			return err
		}
		if err := c.want("model.deploy."+own, fmt.Sprintf(`{"version":%q}`, version), `"acknowledged"`); err != nil {
			return err
		}
		if err := c.put("shared", fmt.Sprintf("c%d-%s", i, version)); err != nil {
			return err
		}
		// Any server answers: what was acknowledged is there for all of them.
		if err := c.want("model.get."+own, "", fmt.Sprintf(`"version":%q`, version)); err != nil {
			return err
		}
		finished()
	}
	return nil
}

// Three servers, each a process, share a storm of puts, deploys and gets. One of
// them is killed in the middle.
func TestAServerIsKilledInAStorm(t *testing.T) {
	dbURL, _ := database(t)
	natsURL := natsServer(t, natsDefaultPayload).ClientURL()
	kill := serverProcess(t, natsURL, dbURL)
	serverProcess(t, natsURL, dbURL)
	serverProcess(t, natsURL, dbURL)

	const clients, rounds = 8, 30
	var done atomic.Int64
	middle := make(chan struct{})
	errs := make([]error, clients)
	storm := make([]*stormClient, clients)
	var all sync.WaitGroup
	for i := range storm {
		storm[i] = &stormClient{conn: natstest.Connect(t, natsURL)}
		all.Go(func() {
			errs[i] = storm[i].work(i, rounds, func() {
				if done.Add(1) == clients*rounds/2 {
					close(middle)
				}
			})
		})
	}
	select {
	case <-middle:
	case <-time.After(time.Minute):
	}
	kill()
	all.Wait()

	lost := 0
	for i, c := range storm {
		require.NoError(t, errs[i])
		lost += c.lost
		require.NoError(t, c.conn.Flush())
		for _, inbox := range c.inboxes {
			pending, _, err := inbox.Pending()
			require.NoError(t, err)
			require.Zero(t, pending, "a second reply to one request")
		}
	}
	t.Logf("%d requests were with the server that was killed", lost)
	require.LessOrEqual(t, lost, clients, "each client had at most one request there")

	a := &api{conn: natstest.Connect(t, natsURL)}
	for i := range clients {
		var want []wadm.VersionInfo
		for round := range rounds {
			want = append(want, wadm.VersionInfo{Version: fmt.Sprintf("v%02d", round), Deployed: round == rounds-1})
		}
		require.Equal(t, want, []wadm.VersionInfo(read[wadm.VersionsReply](t, a, fmt.Sprintf("model.versions.own-%d", i), "").Versions))
	}
	stored := map[string]bool{}
	for _, v := range read[wadm.VersionsReply](t, a, "model.versions.shared", "").Versions {
		stored[v.Version] = true
	}
	require.Len(t, stored, clients*rounds, "no update of what all share is lost")
	last := a.put(t, manifest("shared", "last"))
	require.Equal(t, clients*rounds+1, last.TotalVersions)
}
