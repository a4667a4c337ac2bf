package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/devstack"
	"tidewait/internal/natstest"
	"tidewait/internal/wadm"
)

// operator is who accounts of a NATS server are made by.
type operator struct {
	t    *testing.T
	keys nkeys.KeyPair
	dir  string
}

// account is an account that the operator has not made yet.
type account struct {
	*jwt.AccountClaims
	keys nkeys.KeyPair
}

func newOperator(t *testing.T) operator {
	t.Helper()
	keys, err := nkeys.CreateOperator()
	require.NoError(t, err)
	return operator{t, keys, t.TempDir()}
}

func (o operator) account() account {
	o.t.Helper()
	keys, err := nkeys.CreateAccount()
	require.NoError(o.t, err)
	return account{jwt.NewAccountClaims(o.public(keys)), keys}
}

func (o operator) public(keys nkeys.KeyPair) string {
	o.t.Helper()
	key, err := keys.PublicKey()
	require.NoError(o.t, err)
	return key
}

// credentials makes a user of an account and returns the file that it connects
// with.
func (o operator) credentials(a account) string {
	o.t.Helper()
	keys, err := nkeys.CreateUser()
	require.NoError(o.t, err)
	token, err := jwt.NewUserClaims(o.public(keys)).Encode(a.keys)
	require.NoError(o.t, err)
	seed, err := keys.Seed()
	require.NoError(o.t, err)
	text, err := jwt.FormatUserConfig(token, seed)
	require.NoError(o.t, err)
	path := filepath.Join(o.dir, a.Subject+".creds")
	require.NoError(o.t, os.WriteFile(path, text, 0o600))
	return path
}

// serve starts a NATS server with accounts.
func (o operator) serve(accounts ...account) (url string) {
	o.t.Helper()
	known, system := &server.MemAccResolver{}, o.account()
	for _, a := range append(accounts, system) {
		token, err := a.Encode(o.keys)
		require.NoError(o.t, err)
		require.NoError(o.t, known.Store(a.Subject, token))
	}
	return natstest.Start(o.t, &server.Options{
		TrustedKeys: []string{o.public(o.keys)}, AccountResolver: known, SystemAccount: system.Subject, JetStream: true, StoreDir: filepath.Join(o.dir, "jetstream"),
		MaxPayload: 8 << 20,
	}).ClientURL()
}

func (o operator) connect(url, credentials string) *nats.Conn {
	o.t.Helper()
	nc, err := nats.Connect(url, nats.UserCredentials(credentials))
	require.NoError(o.t, err)
	o.t.Cleanup(nc.Close)
	return nc
}

// tenancy is a NATS server with an account for the product and two for tenants,
// who reach the API of applications under their own names. The product reaches
// the hosts of the first tenant as a user of its account, and those of the
// second because that lets it.
func tenancy(t *testing.T) (o operator, product, first, second account) {
	t.Helper()
	o = newOperator(t)
	product, first, second = o.account(), o.account(), o.account()
	product.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	product.Exports.Add(
		&jwt.Export{Name: "applications", Subject: "*.wadm.api.>", Type: jwt.Service, AccountTokenPosition: 1},
		&jwt.Export{Name: "statuses", Subject: "*.wadm.status.>", Type: jwt.Stream, AccountTokenPosition: 1},
	)
	for _, tenant := range []account{first, second} {
		tenant.Imports.Add(
			&jwt.Import{Account: product.Subject, Subject: jwt.Subject(tenant.Subject + ".wadm.api.>"), LocalSubject: "wadm.api.>", Type: jwt.Service},
			&jwt.Import{Account: product.Subject, Subject: jwt.Subject(tenant.Subject + ".wadm.status.>"), LocalSubject: "wadm.status.>", Type: jwt.Stream},
		)
	}
	second.Exports.Add(
		&jwt.Export{Name: "commands", Subject: "wasmbus.ctl.>", Type: jwt.Service, ResponseType: jwt.ResponseTypeStream},
		&jwt.Export{Name: "events", Subject: "wasmbus.evt.>", Type: jwt.Stream},
	)
	product.Imports.Add(
		&jwt.Import{Account: second.Subject, Subject: "wasmbus.ctl.>", LocalSubject: jwt.RenamingSubject(second.Subject + ".wasmbus.ctl.>"), Type: jwt.Service},
		&jwt.Import{Account: second.Subject, Subject: "wasmbus.evt.>", LocalSubject: jwt.RenamingSubject(second.Subject + ".wasmbus.evt.>"), Type: jwt.Stream},
	)
	return o, product, first, second
}

// TestTenants: two tenants have lattices and applications of the same names.
// Neither sees or touches anything of the other's.
func TestTenants(t *testing.T) {
	long(t, 40*time.Second)
	o, own, one, two := tenancy(t)
	url := o.serve(own, one, two)
	credentials := map[string]string{}
	for _, a := range []account{own, one, two} {
		credentials[a.Subject] = o.credentials(a)
	}
	p := startOn(t, []devstack.Name{devstack.Postgres, devstack.Temporal},
		"TIDEWAIT_NATS_URL="+url, "TIDEWAIT_NATS_CREDENTIALS="+credentials[own.Subject], "TIDEWAIT_WADM_MULTITENANT=true",
		"TIDEWAIT_WADM_CREDENTIALS="+one.Subject+"/default="+credentials[one.Subject])
	tenant := func(a account) *site {
		return p.site(a.Subject, "default", o.connect(url, credentials[a.Subject]), o.connect(url, credentials[a.Subject]))
	}
	first, second := tenant(one), tenant(two)

	for _, s := range []*site{first, second} {
		s.deploy(shop("shop", "v1"))
		s.until("shop", "waiting", func(got wadm.Status) bool { return got.Status.Reason == "never_observed" })
	}
	first.put(shop("extra", "v1"))
	require.Equal(t, []string{"extra", "shop"}, first.names())
	require.Equal(t, []string{"shop"}, second.names())
	require.Equal(t, map[string]int{one.Subject: 1, two.Subject: 1}, p.waiters())

	// Each has hosts of its own.
	host := first.host("h")
	first.becomes("shop", wadm.Deployed)
	require.Equal(t, shopAtFirst, first.told())
	require.Equal(t, "never_observed", second.status("shop").Status.Reason)
	require.Equal(t, map[string]int{two.Subject: 1}, p.waiters())
	second.host("h")
	second.host("spare")
	second.becomes("shop", wadm.Deployed)
	require.Equal(t, map[string]int{"component.scale shop-web": 2, "provider.start shop-http": 1, "link.put shop-http": 1, "config.put shop-listen": 1}, second.told())
	require.Equal(t, shopAtFirst, first.told())
	require.Equal(t, []int{1, 2}, []int{p.hosts(one), p.hosts(two)})
	require.NotContains(t, p.must("lattice", "show", "--account", one.Subject), "spare")
	require.Contains(t, p.must("lattice", "show", "--account", two.Subject), "spare")

	// What becomes of one is nothing to the other.
	second.l.Forget()
	second.published("shop")
	host.Kill()
	first.until("shop", "without a host", func(got wadm.Status) bool { return got.Status.Reason == "no_live_hosts" })
	first.publishes("waiting", "reconciling", "deployed", "waiting")
	require.Equal(t, map[string]int{one.Subject: 1}, p.waiters())
	require.Equal(t, wadm.Deployed, second.status("shop").Status.Type)
	first.host("other")
	first.becomes("shop", wadm.Deployed)
	first.undeploy("shop")
	first.empties()
	_, err := first.api.Delete(first.ctx(), "shop", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"extra"}, first.names())
	require.Equal(t, []string{"shop"}, second.names())
	second.nudge("shop")
	second.settles("shop")
	require.Equal(t, wadm.Deployed, second.status("shop").Status.Type)
	require.Equal(t, map[string]int{"shop-web": 4, "shop-http": 1}, second.runs())
	require.Len(t, second.linked(), 1)
	require.Empty(t, second.told())
	require.Empty(t, second.published("shop"))

	second.undeploy("shop")
	second.empties()
	require.Empty(t, p.waiters())
}

// names lists the applications of a lattice.
func (s *site) names() []string {
	s.t.Helper()
	all, err := s.api.List(s.ctx())
	require.NoError(s.t, err)
	names := []string{}
	for _, a := range all {
		names = append(names, a.Name)
	}
	return names
}

// waiters is how many applications of each account wait.
func (p *product) waiters() map[string]int {
	p.t.Helper()
	var list api.WaitList
	require.NoError(p.t, jsonOf(p.must("waits", "-o", "json"), &list))
	waiting := map[string]int{}
	for _, w := range list.Waits {
		waiting[w.Account]++
	}
	return waiting
}

// hosts is how many hosts the lattice of a tenant has, as lists show it.
func (p *product) hosts(of account) int {
	p.t.Helper()
	var list api.LatticeList
	require.NoError(p.t, jsonOf(p.must("lattice", "list", "-o", "json"), &list))
	for _, l := range list.Lattices {
		if l.Account == of.Subject {
			return l.Hosts
		}
	}
	p.t.Fatalf("no lattice of account %s is listed", of.Subject)
	return 0
}
