package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/store"
)

// TestApplicationsDoWhatAModelDoes lets any sequence of calls meet a model in
// memory, which is wadm's semantics in the fewest words.
func TestApplicationsDoWhatAModelDoes(t *testing.T) {
	s, db := open(t, rules)
	rapid.Check(t, func(rt *rapid.T) {
		_, err := db.Exec(context.Background(), `
DELETE FROM applications; DELETE FROM application_outbox; DELETE FROM wait_history; ALTER SEQUENCE application_revisions RESTART`)
		require.NoError(rt, err)
		m := &model{s: s, db: db, apps: map[string]*modelApp{}}
		rt.Repeat(map[string]func(*rapid.T){
			"put": m.put, "put again": m.putAgain, "deploy": m.deploy, "undeploy": m.undeploy, "delete": m.delete,
			"import": m.load, "claim": m.claim, "deliver": m.deliver, "fail": m.fail, "get": m.get, "": m.check,
		})
	})
}

type model struct {
	s        *store.Store
	db       *pgx.Conn
	apps     map[string]*modelApp
	revision int64
	news     []*modelNews // of all applications, in order
	last     *modelPut
	history  []string
}

type modelApp struct {
	versions []ledger.AppVersion // in the order of puts
	deployed *ledger.AppVersion
	revision int64
}

type modelNews struct {
	id            int64 // when it was claimed
	name, channel string
	kind          string
	revision      int64
	attempts      int
	due           bool
}

type modelPut struct {
	name  string
	v     ledger.AppVersion
	id    uuid.UUID
	total int
}

var (
	modelNames    = rapid.SampledFrom([]string{"a", "b", "c"})
	modelVersions = rapid.SampledFrom([]string{"v1", "v2", "v3", ""})
	modelIDs      = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 2, rapid.ID)
)

// drawVersion draws what differs between versions that matter to each other.
func drawVersion(t *rapid.T) ledger.AppVersion {
	v := appVersion(modelVersions.Draw(t, "version"), "")
	v.Description = ptr(fmt.Sprint("d", rapid.IntRange(0, 3).Draw(t, "description")))
	v.Facts.Shared = rapid.Bool().Draw(t, "shared")
	v.Facts.IDs = modelIDs.Draw(t, "ids")
	slices.Sort(v.Facts.IDs)
	if rapid.IntRange(0, 2).Draw(t, "refers") == 0 {
		v = using(v, modelNames.Draw(t, "to"))
	}
	v.Manifest = []byte(fmt.Sprintf(`{"description": %q, "facts": %q}`, *v.Description, fmt.Sprint(v.Facts)))
	return v
}

func (a *modelApp) find(version *string) *ledger.AppVersion {
	if version == nil {
		return &a.versions[len(a.versions)-1]
	}
	for i := range a.versions {
		if a.versions[i].Version == *version {
			return &a.versions[i]
		}
	}
	return nil
}

func (m *model) tell(name string, kinds ...string) {
	for _, kind := range kinds {
		n := &modelNews{name: name, channel: "nats", kind: kind, revision: m.apps[name].revision, due: true}
		if kind == "revised" {
			n.channel = "temporal"
			m.news = slices.DeleteFunc(m.news, func(o *modelNews) bool {
				return o.name == name && o.channel == "temporal" && (o.attempts == 0 || o.due)
			})
		}
		m.news = append(m.news, n)
	}
}

func (m *model) missing(v ledger.AppVersion) (list []oam.Reference) {
	for _, r := range v.Facts.References {
		if a := m.apps[r.Application]; a == nil || a.deployed == nil || !a.deployed.Facts.Shared {
			list = append(list, r)
		}
	}
	return list
}

// dependants lists who would miss the application when it is v, or is not.
func (m *model) dependants(name string, v *ledger.AppVersion) (list []string) {
	for _, other := range []string{"a", "b", "c"} {
		a := m.apps[other]
		if a == nil || other == name || a.deployed == nil || !slices.Contains(a.deployed.Facts.References, reference(name)) {
			continue
		}
		if v == nil || !v.Facts.Shared {
			list = append(list, other)
		}
	}
	return list
}

func (m *model) put(t *rapid.T) {
	p := &modelPut{name: modelNames.Draw(t, "name"), v: drawVersion(t), id: uuid.New()}
	total, err := m.s.PutApplication(context.Background(), appKey(p.name), p.v, p.id)
	a := m.apps[p.name]
	if a != nil && a.find(&p.v.Version) != nil {
		require.ErrorIs(t, err, store.ErrVersionExists)
		return
	}
	require.NoError(t, err)
	if a == nil {
		a = &modelApp{}
		m.apps[p.name] = a
	}
	a.versions = append(a.versions, p.v)
	p.total, m.last = len(a.versions), p
	require.Equal(t, p.total, total)
}

func (m *model) putAgain(t *rapid.T) {
	if m.last == nil {
		t.Skip("what was put last is gone")
	}
	total, err := m.s.PutApplication(context.Background(), appKey(m.last.name), m.last.v, m.last.id)
	require.NoError(t, err)
	require.Equal(t, m.last.total, total)
}

func (m *model) deploy(t *rapid.T) {
	name, protect := modelNames.Draw(t, "name"), rapid.Bool().Draw(t, "protect")
	version := rapid.Ptr(rapid.OneOf(modelVersions, rapid.Just("latest")), true).Draw(t, "version")
	got, err := m.s.DeployApplication(context.Background(), appKey(name), version, "", store.DeployOptions{Protect: protect})
	want, wantErr := m.deployed(name, version, protect)
	requireSameError(t, wantErr, err)
	require.Equal(t, want, got)
}

// deployed does what a deploy does, in the order of wadm's checks.
func (m *model) deployed(name string, version *string, protect bool) (store.DeployedVersion, error) {
	a := m.apps[name]
	if a == nil {
		return store.DeployedVersion{}, store.ErrNotFound
	}
	if version != nil && *version == "latest" {
		version = nil
	}
	v := a.find(version)
	if v == nil {
		return store.DeployedVersion{}, &store.NoVersion{Version: *version}
	}
	for _, id := range v.Facts.IDs {
		for _, other := range []string{"a", "b", "c"} {
			if o := m.apps[other]; o != nil && other != name && o.deployed != nil && slices.Contains(o.deployed.Facts.IDs, id) {
				return store.DeployedVersion{}, &store.IDTaken{ID: id, Application: other}
			}
		}
	}
	if missing := m.missing(*v); len(missing) > 0 {
		return store.DeployedVersion{}, &store.SharedMissing{References: missing}
	}
	var dependants []string
	if a.deployed != nil {
		dependants = m.dependants(name, v)
	}
	if protect && len(dependants) > 0 {
		return store.DeployedVersion{}, &store.InUse{Dependants: dependants}
	}
	m.revision++
	deployed := *v
	a.deployed, a.revision = &deployed, m.revision
	m.tell(name, "published", "status", "revised")
	return store.DeployedVersion{Version: v.Version, Revision: m.revision, Dependants: dependants}, nil
}

func requireSameError(t require.TestingT, want, got error) {
	if want == nil {
		require.NoError(t, got)
		return
	}
	require.Error(t, got)
	for inner := got; inner != nil; inner = errors.Unwrap(inner) {
		got = inner
		if inner == want || strings.HasPrefix(fmt.Sprintf("%T", inner), "*store.") { //nolint:errorlint // every layer is looked at
			break
		}
	}
	require.Equal(t, want, got)
}

// ended does what the end of a deployment does.
func (m *model) ended(name, by string) {
	m.revision++
	m.apps[name].deployed, m.apps[name].revision = nil, m.revision
	m.tell(name, "unpublished", "status", "revised")
	m.history = append(m.history, name+" "+by)
}

func (m *model) undeploy(t *rapid.T) {
	name, protect := modelNames.Draw(t, "name"), rapid.Bool().Draw(t, "protect")
	got, err := m.s.UndeployApplication(context.Background(), appKey(name), "", protect)
	a := m.apps[name]
	if a == nil {
		require.ErrorIs(t, err, store.ErrNotFound)
		return
	}
	if a.deployed == nil {
		require.NoError(t, err)
		require.Equal(t, store.Undeployed{}, got)
		return
	}
	dependants := m.dependants(name, nil)
	if protect && len(dependants) > 0 {
		requireSameError(t, &store.InUse{Dependants: dependants}, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, store.Undeployed{Was: true, Dependants: dependants}, got)
	m.ended(name, "undeployed")
}

func (m *model) delete(t *rapid.T) {
	name, protect := modelNames.Draw(t, "name"), rapid.Bool().Draw(t, "protect")
	version := rapid.Ptr(modelVersions, true).Draw(t, "version")
	got, err := m.s.DeleteApplication(context.Background(), appKey(name), version, "", protect)
	a := m.apps[name]
	if a == nil || a.find(version) == nil {
		require.NoError(t, err)
		require.Equal(t, store.Deleted{}, got)
		return
	}
	whole := version == nil || len(a.versions) == 1
	want := store.Deleted{Found: true, Undeploy: whole}
	if a.deployed != nil && (whole || a.deployed.Version == *version) {
		want.Undeploy, want.Dependants = true, m.dependants(name, nil)
		if protect && len(want.Dependants) > 0 {
			requireSameError(t, &store.InUse{Dependants: want.Dependants}, err)
			return
		}
		m.ended(name, "deleted")
	}
	require.NoError(t, err)
	require.Equal(t, want, got)
	if m.last != nil && m.last.name == name && (whole || m.last.v.Version == *version) {
		m.last = nil
	}
	if whole {
		delete(m.apps, name)
		return
	}
	a.versions = slices.DeleteFunc(a.versions, func(v ledger.AppVersion) bool { return v.Version == *version })
}

// load imports one version, applied or not.
func (m *model) load(t *rapid.T) {
	name, v, apply := modelNames.Draw(t, "name"), drawVersion(t), rapid.Bool().Draw(t, "apply")
	list, err := m.s.ImportVersions(context.Background(), appKey(name), []ledger.AppVersion{v}, nil, "", apply)
	require.NoError(t, err)
	want := store.ImportedVersion{Version: v.Version, What: store.ImportAdded}
	if a := m.apps[name]; a != nil && a.find(&v.Version) != nil {
		want.What = store.ImportKept
		if string(a.find(&v.Version).Manifest) != string(v.Manifest) {
			want.What, want.Why = store.ImportConflict, "a different manifest is stored under this version"
		}
	}
	require.Equal(t, []store.ImportedVersion{want}, list)
	if want.What == store.ImportAdded && apply {
		if m.apps[name] == nil {
			m.apps[name] = &modelApp{}
		}
		m.apps[name].versions = append(m.apps[name].versions, v)
	}
}

// claim takes the oldest of each application and channel.
func (m *model) claim(t *rapid.T) {
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	got, err := m.s.ClaimNews(context.Background(), limit, time.Hour)
	require.NoError(t, err)
	seen := map[string]bool{}
	var want []*modelNews
	for _, n := range m.news {
		if !seen[n.name+n.channel] && n.due && len(want) < limit {
			n.due = false
			n.attempts++
			want = append(want, n)
		}
		seen[n.name+n.channel] = true
	}
	require.Len(t, got, len(want))
	for i, n := range want {
		n.id = got[i].ID
		require.Equal(t, []any{n.name, n.kind, n.revision, n.attempts},
			[]any{got[i].Key.Name, got[i].Kind, got[i].Revision, got[i].Attempts})
	}
}

func (m *model) held(t *rapid.T) *modelNews {
	var held []*modelNews
	for _, n := range m.news {
		if n.id != 0 && !n.due {
			held = append(held, n)
		}
	}
	if len(held) == 0 {
		t.Skip("nobody carries anything")
	}
	return rapid.SampledFrom(held).Draw(t, "news")
}

func (m *model) deliver(t *rapid.T) {
	n := m.held(t)
	require.NoError(t, m.s.NewsDelivered(context.Background(), []int64{n.id}))
	m.news = slices.DeleteFunc(m.news, func(o *modelNews) bool { return o == n })
}

func (m *model) fail(t *rapid.T) {
	n := m.held(t)
	require.NoError(t, m.s.NewsFailed(context.Background(), n.id, "down", 0))
	n.due = true
}

func (m *model) get(t *rapid.T) {
	name, version := modelNames.Draw(t, "name"), rapid.Ptr(modelVersions, true).Draw(t, "version")
	got, err := m.s.Manifest(context.Background(), appKey(name), version)
	a := m.apps[name]
	if a == nil || a.find(version) == nil {
		require.ErrorIs(t, err, store.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(a.find(version).Manifest), string(got))
}

// check compares the rest of what can be read.
func (m *model) check(t *rapid.T) {
	ctx := context.Background()
	requireSound(t, m.db)
	var listed, deployed []string
	for _, name := range []string{"a", "b", "c"} {
		a, key := m.apps[name], appKey(name)
		app, err := m.s.Application(ctx, key)
		require.NoError(t, err)
		versions, err := m.s.ApplicationVersions(ctx, key)
		if a == nil {
			require.ErrorIs(t, err, store.ErrNotFound)
			require.Zero(t, app.Revision)
			continue
		}
		require.NoError(t, err)
		require.Len(t, versions, len(a.versions))
		for i, v := range versions {
			require.Equal(t, a.versions[i].Version, v.Version)
			require.Equal(t, a.deployed != nil && a.deployed.Version == v.Version, v.Deployed)
		}
		require.Equal(t, a.revision, app.Revision)
		require.Equal(t, a.deployed != nil, app.IsDeployed)
		require.Equal(t, a.deployed != nil, app.Wait != nil)
		if a.deployed != nil {
			deployed = append(deployed, name)
		}
		newest := a.find(nil)
		listed = append(listed, fmt.Sprint(name, " ", newest.Version, " ", *newest.Description))
	}
	m.checkLists(t, listed, deployed)
}

func (m *model) checkLists(t *rapid.T, listed, deployed []string) {
	ctx := context.Background()
	list, total, err := m.s.ListApplications(ctx, "default", "west", "", 0)
	require.NoError(t, err)
	require.Equal(t, len(listed), total)
	for i, a := range list {
		require.Equal(t, listed[i], fmt.Sprint(a.Name, " ", a.Version, " ", *a.Description))
	}
	keys, err := m.s.ApplicationsToKeep(ctx, "", "")
	require.NoError(t, err)
	require.Len(t, keys, len(deployed))
	for i, key := range keys {
		require.Equal(t, appKey(deployed[i]), key)
	}
	rows, err := m.db.Query(ctx, `SELECT name || ' ' || kind || ' ' || revision FROM application_outbox ORDER BY id`)
	require.NoError(t, err)
	news, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, news, len(m.news))
	for i, n := range m.news {
		require.Equal(t, fmt.Sprintf("%s %s %d", n.name, n.kind, n.revision), news[i])
	}
	rows, err = m.db.Query(ctx, `SELECT application || ' ' || ended_by FROM wait_history ORDER BY id`)
	require.NoError(t, err)
	history, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, history, len(m.history))
	for i, h := range m.history {
		require.Equal(t, h, history[i])
	}
}
