package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

func claim(t testing.TB, s *store.Store, limit int) []ledger.News {
	t.Helper()
	news, err := s.ClaimNews(context.Background(), limit, time.Hour)
	require.NoError(t, err)
	return news
}

// claimed claims all there are and writes down "name kind revision" of each.
func claimed(t testing.TB, s *store.Store) (words []string, ids []int64) {
	t.Helper()
	for _, n := range claim(t, s, 10) {
		words = append(words, fmt.Sprintf("%s %s %d", n.Key.Name, n.Kind, n.Revision))
		ids = append(ids, n.ID)
	}
	return words, ids
}

// endLeases is what time does.
func endLeases(t testing.TB, db *pgx.Conn) {
	t.Helper()
	_, err := db.Exec(context.Background(), `UPDATE application_outbox SET not_before = not_before - interval '1 hour'`)
	require.NoError(t, err)
}

func TestNewsAreCarriedInOrder(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	second := another(t, db, rules)
	for _, name := range []string{"a", "b"} {
		put(t, s, appKey(name), appVersion("v1", name))
	}
	before, err := s.Now(ctx)
	require.NoError(t, err)
	deploy(t, s, appKey("a"), nil)
	deploy(t, s, appKey("b"), nil)
	undeploy(t, s, appKey("a"))

	first := claim(t, s, 2)
	require.Len(t, first, 2)
	require.Equal(t, appKey("a"), first[0].Key)
	require.Equal(t, "published", first[0].Kind)
	require.Equal(t, 1, first[0].Attempts)
	require.False(t, first[0].At.Before(before))
	require.Equal(t, time.UTC, first[0].At.Location())
	require.Equal(t, "published", first[1].Kind)
	require.Equal(t, appKey("b"), first[1].Key)

	others, ids := claimed(t, second)
	require.Equal(t, []string{"b revised 2", "a revised 3"}, others, "the other channel is not held up, and the rest waits")
	require.NoError(t, second.NewsDelivered(ctx, ids))
	words, _ := claimed(t, second)
	require.Empty(t, words)

	require.NoError(t, s.NewsDelivered(ctx, []int64{first[0].ID, first[1].ID}))
	words, ids = claimed(t, second)
	require.Equal(t, []string{"a status 1", "b status 2"}, words)
	require.NoError(t, second.NewsDelivered(ctx, ids))
	words, ids = claimed(t, s)
	require.Equal(t, []string{"a unpublished 3"}, words)
	require.NoError(t, s.NewsDelivered(ctx, ids))
	words, ids = claimed(t, s)
	require.Equal(t, []string{"a status 3"}, words)
	require.NoError(t, s.NewsDelivered(ctx, ids))
	require.NoError(t, s.NewsDelivered(ctx, ids), "twice does no harm")
	require.NoError(t, s.NewsDelivered(ctx, nil))
	require.Zero(t, count(t, db, "SELECT count(*) FROM application_outbox"))
}

// TestNewsOfAnEngineThatDied are carried by another one after the lease.
func TestNewsOfAnEngineThatDied(t *testing.T) {
	s, db := open(t, rules)
	put(t, s, appKey("a"), appVersion("v1", "a"))
	deploy(t, s, appKey("a"), nil)
	taken := claim(t, s, 10)
	require.Len(t, taken, 2)
	s.Close()
	heir := another(t, db, rules)
	require.Empty(t, claim(t, heir, 10))

	endLeases(t, db)
	again := claim(t, heir, 10)

	require.Equal(t, []int{2, 2}, []int{again[0].Attempts, again[1].Attempts})
	for i := range again {
		again[i].Attempts = 1
	}
	require.Equal(t, taken, again)
	require.Empty(t, claim(t, heir, 10))
}

func TestNewsThatFailedAreDueAfterAPause(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	put(t, s, appKey("a"), appVersion("v1", "a"))
	deploy(t, s, appKey("a"), nil)
	taken := claim(t, s, 10)

	require.NoError(t, s.NewsFailed(ctx, taken[0].ID, "nats: \x00no\xff servers", 0))

	var why string
	require.NoError(t, db.QueryRow(ctx, `SELECT error FROM application_outbox WHERE id = $1`, taken[0].ID).Scan(&why))
	require.Equal(t, "nats: \uFFFDno\uFFFD servers", why)
	words, _ := claimed(t, s)
	require.Equal(t, []string{"a published 1"}, words, "it is due at once, and still the first")
	require.NoError(t, s.NewsFailed(ctx, taken[0].ID, "again", time.Hour))
	require.Empty(t, claim(t, s, 10), "what is behind it waits with it")
	endLeases(t, db)
	require.Equal(t, 3, claim(t, s, 1)[0].Attempts)
	require.NoError(t, s.NewsFailed(ctx, 1<<40, "no such row", time.Hour))
}

// TestNewsForAWorkflowAreTheLatest shows what is taken back and what is not.
func TestNewsForAWorkflowAreTheLatest(t *testing.T) {
	ctx := context.Background()
	s, db := open(t, rules)
	key := appKey("a")
	put(t, s, key, appVersion("v1", "a"))
	deploy(t, s, key, nil)
	deploy(t, s, key, nil)
	require.Equal(t, []string{"revised 2"}, outbox(t, db, key, "temporal"))

	carrying := claim(t, s, 10)[1]
	require.EqualValues(t, 2, carrying.Revision)
	deploy(t, s, key, nil)
	deploy(t, s, key, nil)
	require.Equal(t, []string{"revised 2", "revised 4"}, outbox(t, db, key, "temporal"), "it is being carried")
	require.Empty(t, claim(t, s, 10), "and the next one waits for it")

	require.NoError(t, s.NewsFailed(ctx, carrying.ID, "down", time.Hour))
	deploy(t, s, key, nil)
	require.Equal(t, []string{"revised 2", "revised 5"}, outbox(t, db, key, "temporal"), "nobody knows whether it is")
	endLeases(t, db)
	undeploy(t, s, key)
	require.Equal(t, []string{"revised 6"}, outbox(t, db, key, "temporal"))
}

// TestNewsHaveOneCarrier lets several engines carry while applications are
// deployed and undeployed. Some engines lose what they took.
func TestNewsHaveOneCarrier(t *testing.T) {
	const applications, changes = 6, 30
	ctx := context.Background()
	stores, db := engines(t, 4)
	for i := range applications {
		name := fmt.Sprint("a", i)
		put(t, stores[0], appKey(name), appVersion("v1", name))
	}

	var mu sync.Mutex
	held := map[int64]bool{}
	told := map[string][]int64{} // ids by application and channel
	carry := func(n ledger.News, drop bool) {
		mu.Lock()
		defer mu.Unlock()
		channel := n.Key.Name + " nats"
		if n.Kind == "revised" {
			channel = n.Key.Name + " temporal"
		}
		if held[n.ID] {
			t.Errorf("two have %s %s", channel, n.Kind)
		}
		held[n.ID] = !drop
		if !drop {
			told[channel] = append(told[channel], n.ID)
		}
	}
	changed := make(chan struct{})
	var calls []func()
	for _, s := range stores {
		calls = append(calls, func() {
			for turn := 0; ; turn++ {
				done := false
				select {
				case <-changed:
					done = true
				default:
				}
				news, err := s.ClaimNews(ctx, 3, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				if done && len(news) == 0 && left(t, db, &mu) == 0 {
					return
				}
				var ids []int64
				for i, n := range news {
					drop := (turn+i)%4 == 0
					carry(n, drop)
					if !drop {
						ids = append(ids, n.ID)
					} else if err := s.NewsFailed(ctx, n.ID, "dropped", 0); err != nil {
						t.Error(err)
					}
				}
				if err := s.NewsDelivered(ctx, ids); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls = append(calls, func() {
		defer close(changed)
		for i := range changes * applications {
			key := appKey(fmt.Sprint("a", i%applications))
			var err error
			if i/applications%3 == 2 {
				_, err = stores[0].UndeployApplication(ctx, key, "", false)
			} else {
				_, err = stores[0].DeployApplication(ctx, key, nil, "", store.DeployOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		}
	})

	atOnce(calls...)

	require.Len(t, told, 2*applications)
	for channel, ids := range told {
		require.True(t, slices.IsSorted(ids), "%s was told %v", channel, ids)
	}
	for i := range applications {
		require.Len(t, told[fmt.Sprintf("a%d nats", i)], 2*changes, "nothing is lost, nothing is told twice")
	}
}

func left(t *testing.T, db *pgx.Conn, mu *sync.Mutex) int {
	mu.Lock()
	defer mu.Unlock()
	var n int
	if err := db.QueryRow(context.Background(), `SELECT count(*) FROM application_outbox`).Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}
