package lattice_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/lattice"
	"tidewait/internal/scaler"
)

var terms = lattice.Terms{Lease: 35 * time.Second, Grace: 10 * time.Second, Questions: 2}

// start is when all tests begin.
var start = time.Date(2026, 11, 30, 13, 0, 0, 0, time.UTC)

// at is so many seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// says is an event of the host NA.
func says(data any) lattice.Event { return lattice.Event{ID: "1", Host: "NA", Data: data} }

func component(id string, count int, scaler string) lattice.Entry {
	return lattice.Entry{ID: id, Image: "registry.example/" + id, Count: count, Annotations: annotations(scaler)}
}

// known returns a projection with one host, NA, that has been up for a minute
// and runs two instances of api and the provider web.
func known(t *testing.T) *lattice.Projection {
	t.Helper()
	p := lattice.NewProjection(terms)
	change := p.Inventory(shop(), p.Mark(), start)
	require.Equal(t, lattice.Change{Hosts: []string{"NA"}, Started: []string{"NA"}, IDs: []string{"api", "web"}, Apps: []string{"shop-front"}}, change)
	return p
}

func shop() lattice.Inventory {
	return lattice.Inventory{
		Host: "NA", Name: "blue-sea", Labels: map[string]string{"zone": "eu"}, Version: "1.9.2", Uptime: time.Minute,
		Components: []lattice.Entry{component("api", 2, "s1")}, Providers: []lattice.Entry{component("web", 1, "s7")},
	}
}

func TestAnEventChangesWhatItIsSureAboutAndHasTheHostAsked(t *testing.T) {
	other := component("api", 5, "s2")
	other.Image = "registry.example/api:old"
	asked := lattice.Questions{Hosts: []string{"NA"}}
	api := lattice.Change{IDs: []string{"api"}, Apps: []string{"shop-front"}}
	web := lattice.Change{IDs: []string{"web"}, Apps: []string{"shop-front"}}
	for _, c := range []struct {
		name   string
		data   any
		change lattice.Change
		asks   lattice.Questions
		see    func(*scaler.Host)
	}{
		{
			"a count, with annotations and an image from before",
			lattice.ComponentScaled{Entry: other},
			api, asked,
			func(h *scaler.Host) { h.Components[0].Count = 5 },
		},
		{
			"the count that is known",
			lattice.ComponentScaled{Entry: component("api", 2, "s1")},
			lattice.Change{},
			asked,
			func(*scaler.Host) {},
		},
		{
			"a component that is gone",
			lattice.ComponentScaled{Entry: component("api", 0, "s1")},
			api, asked,
			func(h *scaler.Host) { h.Components = nil },
		},
		{
			"a component that was not there",
			lattice.ComponentScaled{Entry: component("jobs", 3, "s9")},
			lattice.Change{IDs: []string{"jobs"}, Apps: []string{"shop-front"}},
			asked,
			func(h *scaler.Host) { h.Components = append(h.Components, component("jobs", 3, "s9").Instances()) },
		},
		{
			"a component that never was there is gone",
			lattice.ComponentScaled{Entry: component("jobs", 0, "s9")},
			lattice.Change{},
			asked,
			func(*scaler.Host) {},
		},
		{
			"a component nobody owns",
			lattice.ComponentScaled{Entry: lattice.Entry{ID: "mine", Count: 1}},
			lattice.Change{IDs: []string{"mine"}},
			asked,
			func(h *scaler.Host) { h.Components = append(h.Components, scaler.Instances{ID: "mine", Count: 1}) },
		},
		{
			"a failure",
			lattice.ComponentScaleFailed{Entry: other, Error: "no"},
			lattice.Change{},
			lattice.Questions{},
			func(*scaler.Host) {},
		},
		{
			"a provider of that id again",
			lattice.ProviderStarted{Entry: component("web", 1, "s8")},
			web, asked,
			func(h *scaler.Host) { h.Providers[0].Annotations = annotations("s8") },
		},
		{
			"a provider that is gone",
			lattice.ProviderStopped{ID: "web"},
			web, asked,
			func(h *scaler.Host) { h.Providers = nil },
		},
		{
			"a provider that did not start",
			lattice.ProviderStartFailed{ID: "web", Error: "no"},
			lattice.Change{},
			lattice.Questions{},
			func(*scaler.Host) {},
		},
		{
			"an ill provider",
			lattice.ProviderHealth{ID: "web", Health: lattice.Unhealthy},
			web,
			lattice.Questions{},
			func(h *scaler.Host) { h.Providers[0].Unhealthy = true },
		},
		{
			"a provider in health",
			lattice.ProviderHealth{ID: "web", Health: lattice.Healthy},
			lattice.Change{},
			lattice.Questions{},
			func(*scaler.Host) {},
		},
		{
			"a provider that is as it was",
			lattice.ProviderHealth{ID: "web"},
			lattice.Change{},
			lattice.Questions{},
			func(*scaler.Host) {},
		},
		{
			"the health of a provider that is not there",
			lattice.ProviderHealth{ID: "db", Health: lattice.Unhealthy},
			lattice.Change{},
			lattice.Questions{},
			func(*scaler.Host) {},
		},
		{
			"labels",
			lattice.LabelsChanged{Labels: map[string]string{"zone": "us"}},
			lattice.Change{Hosts: []string{"NA"}},
			lattice.Questions{},
			func(h *scaler.Host) { h.Labels = map[string]string{"zone": "us"} },
		},
		{
			"the labels that are known",
			lattice.LabelsChanged{Labels: map[string]string{"zone": "eu"}},
			lattice.Change{},
			lattice.Questions{},
			func(*scaler.Host) {},
		},
		{
			"a new start",
			lattice.HostStarted{Name: "red-sea", Labels: map[string]string{"zone": "eu"}},
			lattice.Change{Started: []string{"NA"}, IDs: []string{"api", "web"}, Apps: []string{"shop-front"}},
			asked,
			func(h *scaler.Host) { h.Components, h.Providers = nil, nil },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := known(t)
			want := p.State(nil).Hosts[0]
			want.Components, want.Providers = append([]scaler.Instances{}, want.Components...), append([]scaler.Instances{}, want.Providers...)
			c.see(&want)

			change, asks := p.Apply(says(c.data), at(1))
			require.Equal(t, c.change, change)
			require.Equal(t, c.asks, asks)
			got := p.State(nil).Hosts[0]
			require.Equal(t, want.Labels, got.Labels)
			require.ElementsMatch(t, want.Components, got.Components)
			require.ElementsMatch(t, want.Providers, got.Providers)
			require.Equal(t, at(1), p.Hosts(at(1))[0].LastSeen)
			require.Equal(t, at(36), p.Hosts(at(1))[0].LeaseEnd)
		})
	}
}

func TestAHostThatSaysGoodbyeIsGoneWithAllThatRanThere(t *testing.T) {
	p := known(t)
	change, asks := p.Apply(says(lattice.HostStopped{}), at(1))
	require.Equal(t, lattice.Change{Hosts: []string{"NA"}, IDs: []string{"api", "web"}, Apps: []string{"shop-front"}}, change)
	require.Empty(t, asks.Hosts)
	require.Empty(t, p.State(nil).Hosts)

	change, _ = p.Apply(says(lattice.HostStopped{}), at(2))
	require.Empty(t, change)
}

func TestNoEventBringsAHostIn(t *testing.T) {
	p := known(t)
	before := p.Mark()
	p.Apply(says(lattice.HostStopped{}), at(1))
	for _, data := range []any{
		lattice.HostStarted{},
		lattice.HostHeartbeat{Inventory: shop()},
		lattice.ComponentScaled{Entry: component("api", 2, "s1")},
		lattice.ProviderStarted{Entry: component("web", 1, "s7")},
		lattice.ProviderHealth{ID: "web", Health: lattice.Healthy},
		lattice.LabelsChanged{Labels: map[string]string{}},
	} {
		change, asks := p.Apply(says(data), at(2))
		require.Empty(t, change)
		require.Equal(t, []string{"NA"}, asks.Hosts)
		require.Empty(t, p.State(nil).Hosts)
	}
	require.Empty(t, p.Inventory(shop(), before, at(2)), "an answer to a question from before it went")
	require.Empty(t, p.State(nil).Hosts)
	require.Equal(t, []string{"NA"}, p.Inventory(shop(), p.Mark(), at(3)).Started)
}

func TestAHeartbeatThatSaysWhatIsKnownChangesNothing(t *testing.T) {
	p := known(t)
	inv := shop()
	inv.Uptime += 30 * time.Second
	change, asks := p.Apply(says(lattice.HostHeartbeat{Inventory: inv}), at(30))
	require.Empty(t, change)
	require.Empty(t, asks)
	require.Equal(t, at(65), p.Hosts(at(30))[0].LeaseEnd)
	require.Equal(t, 90*time.Second, p.Hosts(at(30))[0].Uptime)
}

func TestAHeartbeatThatSaysOtherwiseHasTheHostAsked(t *testing.T) {
	for name, change := range map[string]func(*lattice.Inventory){
		"count":       func(inv *lattice.Inventory) { inv.Components = []lattice.Entry{component("api", 3, "s1")} },
		"annotations": func(inv *lattice.Inventory) { inv.Components = []lattice.Entry{component("api", 2, "s2")} },
		"one less":    func(inv *lattice.Inventory) { inv.Providers = nil },
		"another":     func(inv *lattice.Inventory) { inv.Providers = []lattice.Entry{component("db", 1, "s7")} },
		"labels":      func(inv *lattice.Inventory) { inv.Labels = nil },
		"name":        func(inv *lattice.Inventory) { inv.Name = "red-sea" },
		"a new life":  func(inv *lattice.Inventory) { inv.Uptime = 5 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			p := known(t)
			inv := shop()
			inv.Uptime += 30 * time.Second
			change(&inv)
			before := p.State(nil)
			change, asks := p.Apply(says(lattice.HostHeartbeat{Inventory: inv}), at(30))
			require.Empty(t, change)
			require.Equal(t, []string{"NA"}, asks.Hosts)
			require.Equal(t, before, p.State(nil), "it may be older than what is known")
		})
	}
}

func TestAnAnswerDoesNotUndoWhatWasHeardSinceTheQuestion(t *testing.T) {
	p := known(t)
	asked := p.Mark()
	p.Apply(says(lattice.ComponentScaled{Entry: component("api", 0, "s1")}), at(1))
	p.Apply(says(lattice.ComponentScaled{Entry: component("jobs", 1, "s2")}), at(1))

	old := shop()
	old.Components = append(old.Components, component("mail", 1, "s3"))
	old.Providers = nil
	change := p.Inventory(old, asked, at(1))
	require.Equal(t, []string{"mail", "web"}, change.IDs)
	h := p.State(nil).Hosts[0]
	require.Equal(t, []scaler.Instances{component("jobs", 1, "s2").Instances(), component("mail", 1, "s3").Instances()}, h.Components)
	require.Empty(t, h.Providers)
	require.Equal(t, []string{"NA"}, p.Due(at(1)), "it is still in doubt")

	p.Inventory(shop(), p.Mark(), at(2))
	require.Equal(t, []scaler.Instances{component("api", 2, "s1").Instances()}, p.State(nil).Hosts[0].Components)
	require.Empty(t, p.Due(at(2)))
}

func TestAnAnswerFromBeforeANewStartIsOfTheFormerLife(t *testing.T) {
	p := known(t)
	asked := p.Mark()
	p.Apply(says(lattice.HostStarted{Labels: map[string]string{"zone": "eu"}}), at(100))
	require.Empty(t, p.Inventory(shop(), asked, at(100)))
	require.Empty(t, p.State(nil).Hosts[0].Components)
	require.Equal(t, []string{"NA"}, p.Due(at(100)))
}

func TestANewLifeIsSeenFromTheUptime(t *testing.T) {
	p := known(t)
	p.Apply(says(lattice.ProviderHealth{ID: "web", Health: lattice.Unhealthy}), at(1))
	inv := shop()
	inv.Uptime = 3 * time.Second
	change := p.Inventory(inv, p.Mark(), at(20))
	require.Equal(t, []string{"NA"}, change.Started)
	require.False(t, p.State(nil).Hosts[0].Providers[0].Unhealthy)
	require.Equal(t, 3*time.Second, p.Hosts(at(20))[0].Uptime)

	inv.Uptime = 40 * time.Second // heard late, or counted in whole seconds
	require.Empty(t, p.Inventory(inv, p.Mark(), at(60)).Started)
}

func TestHealthOutlivesAnInventoryAndNotTheProvider(t *testing.T) {
	p := known(t)
	p.Apply(says(lattice.ProviderHealth{ID: "web", Health: lattice.Unhealthy}), at(1))
	p.Inventory(shop(), p.Mark(), at(2))
	require.True(t, p.State(nil).Hosts[0].Providers[0].Unhealthy)
	require.Equal(t, lattice.Unhealthy, p.Hosts(at(2))[0].Providers[0].Health)
	p.Apply(says(lattice.ProviderStopped{ID: "web"}), at(3))
	p.Apply(says(lattice.ProviderStarted{Entry: component("web", 1, "s7")}), at(3))
	require.False(t, p.State(nil).Hosts[0].Providers[0].Unhealthy)
}

func TestAPinnedImageHoldsUntilTheComponentIsGone(t *testing.T) {
	p := known(t)
	claims := shop()
	claims.Components = []lattice.Entry{{ID: "api", Image: "registry.example/api:new", Count: 2, Annotations: annotations("s1")}}
	image := func() string { return p.State(nil).Hosts[0].Components[0].Image }

	p.Inventory(claims, p.Mark(), at(1))
	require.Equal(t, "registry.example/api:new", image())
	require.Equal(t, []string{"api"}, p.Pin("NA", "api", "registry.example/api").IDs)
	require.Equal(t, "registry.example/api", image())
	require.Empty(t, p.Inventory(claims, p.Mark(), at(2)))
	require.Equal(t, "registry.example/api", image())

	p.Apply(says(lattice.ComponentScaled{Entry: component("api", 0, "s1")}), at(3))
	p.Inventory(claims, p.Mark(), at(4))
	require.Equal(t, "registry.example/api:new", image())
}

func TestLeases(t *testing.T) {
	t.Run("a host that nobody listens for is gone when its lease is over", func(t *testing.T) {
		p := known(t)
		require.Empty(t, p.Due(at(34)))
		require.Equal(t, []string{"NA"}, p.Due(at(35)))
		require.Equal(t, []string{"NA"}, p.Silent("NA", true, at(35)).Hosts)
		require.False(t, p.Has("NA"))
	})
	t.Run("a host that does not answer is asked twice", func(t *testing.T) {
		p := known(t)
		require.Empty(t, p.Silent("NA", false, at(37)))
		require.Equal(t, []string{"NA"}, p.Due(at(38)))
		require.Equal(t, []string{"NA"}, p.Silent("NA", false, at(40)).Hosts)
	})
	t.Run("an answer renews the lease", func(t *testing.T) {
		p := known(t)
		require.Empty(t, p.Silent("NA", false, at(37)))
		p.Renew("NA", at(39))
		require.Empty(t, p.Silent("NA", false, at(75)))
		require.True(t, p.Has("NA"))
		require.Equal(t, at(74), p.Hosts(at(75))[0].LeaseEnd)
	})
	t.Run("a host that was just heard of may be away for a moment", func(t *testing.T) {
		p := known(t)
		require.Empty(t, p.Silent("NA", true, at(1)))
		require.Equal(t, []string{"NA"}, p.Due(at(2)), "it is asked again and again")
		require.Empty(t, p.Silent("NA", true, at(10)))
		require.Equal(t, []string{"NA"}, p.Silent("NA", true, at(11)).Hosts)
	})
	t.Run("a host that is heard of again stays", func(t *testing.T) {
		p := known(t)
		p.Silent("NA", true, at(1))
		p.Apply(says(lattice.ProviderHealth{ID: "web"}), at(5))
		require.Empty(t, p.Silent("NA", true, at(11)))
		require.True(t, p.Has("NA"))
	})
	t.Run("after a time in which nobody could be heard everybody has a moment", func(t *testing.T) {
		p := known(t)
		p.Silent("NA", false, at(36))
		p.Excuse(at(50))
		require.Empty(t, p.Silent("NA", true, at(59)))
		require.Equal(t, []string{"NA"}, p.Silent("NA", true, at(60)).Hosts)
	})
	t.Run("a host that will not say what it runs is alive", func(t *testing.T) {
		p := known(t)
		p.Apply(says(lattice.ComponentScaled{Entry: component("api", 0, "s1")}), at(1))
		require.Equal(t, []string{"NA"}, p.Due(at(1)))
		p.Alive("NA", at(2))
		require.Empty(t, p.Due(at(2)))
	})
	t.Run("of one that is not known nothing is noted", func(t *testing.T) {
		p := known(t)
		require.Empty(t, p.Silent("NB", true, at(100)))
		require.Empty(t, p.Lost("NB", at(100)))
		p.Renew("NB", at(100))
		require.False(t, p.Has("NB"))
	})
}

func TestLinks(t *testing.T) {
	p := lattice.NewProjection(terms)
	other := shopLink
	other.Target = "shop_front-api2"
	put := func(l scaler.Link) lattice.Change {
		c, q := p.Apply(says(lattice.LinkSet{Link: l}), start)
		require.Empty(t, q)
		return c
	}
	require.Equal(t, lattice.Change{Links: []scaler.Tuple{shopLink.Tuple()}}, put(shopLink))
	require.Empty(t, put(shopLink))
	changed := shopLink
	changed.Interfaces = []string{"outgoing-handler"}
	require.Equal(t, lattice.Change{Links: []scaler.Tuple{shopLink.Tuple()}}, put(changed))
	require.Equal(t, []scaler.Link{changed}, p.State(nil).Links)

	asked := p.Mark()
	put(other)
	require.Empty(t, p.Links([]scaler.Link{changed}, asked), "an answer from before the second link")
	require.Equal(t, []scaler.Link{changed, other}, p.State(nil).Links)
	require.Equal(t, []scaler.Tuple{shopLink.Tuple(), other.Tuple()}, p.Links([]scaler.Link{shopLink}, p.Mark()).Links)
	require.Equal(t, []scaler.Link{shopLink}, p.State(nil).Links)

	c, q := p.Apply(says(lattice.LinkDeleted{Tuple: scaler.Tuple{Source: "shop_front-web", Name: "default", Namespace: "wasi", Package: "http"}}), start)
	require.Empty(t, c)
	require.True(t, q.Links, "the host found none, and one is known")
	asked = p.Mark()
	c, _ = p.Apply(says(lattice.LinkDeleted{Tuple: shopLink.Tuple()}), start)
	require.Equal(t, lattice.Change{Links: []scaler.Tuple{shopLink.Tuple()}}, c)
	require.Empty(t, p.Links([]scaler.Link{shopLink}, asked), "an answer from before the link was deleted")
	require.Empty(t, p.State(nil).Links)
	require.Empty(t, p.DeleteLink(shopLink.Tuple()))
	require.Equal(t, []scaler.Tuple{shopLink.Tuple()}, p.PutLink(shopLink).Links)
}

func TestConfigs(t *testing.T) {
	p := lattice.NewProjection(terms)
	one, two := map[string]string{"a": "1"}, map[string]string{"a": "2"}
	is := func() map[string]map[string]string { return p.State([]string{"c", "d"}).Configs }

	c, q := p.Apply(says(lattice.ConfigSet{Name: "c"}), start)
	require.Empty(t, c)
	require.Empty(t, q, "nobody wants it")
	require.Equal(t, []string{"c", "d"}, p.Want(map[string]bool{"d": true, "c": true}))
	require.Equal(t, lattice.Change{Configs: []string{"c"}}, p.Config("c", one, true, p.Mark()))
	require.Empty(t, p.Config("d", nil, false, p.Mark()))
	require.Empty(t, p.Want(map[string]bool{"d": true, "c": true}))
	require.Equal(t, map[string]map[string]string{"c": one}, is())

	asked := p.Mark()
	_, q = p.Apply(says(lattice.ConfigSet{Name: "c"}), start)
	require.Equal(t, []string{"c"}, q.Configs)
	later := p.Mark()
	require.Empty(t, p.Config("c", map[string]string{"a": "0"}, true, asked), "an answer from before it was put")
	require.Equal(t, lattice.Change{Configs: []string{"c"}}, p.Config("c", two, true, later))
	require.Empty(t, p.SetConfig("c", two, true))

	asked = p.Mark()
	c, _ = p.Apply(says(lattice.ConfigDeleted{Name: "c"}), start)
	require.Equal(t, lattice.Change{Configs: []string{"c"}}, c)
	require.Empty(t, p.Config("c", two, true, asked), "an answer from before it was deleted")
	require.Empty(t, is())
	require.Equal(t, lattice.Change{Configs: []string{"d"}}, p.SetConfig("d", map[string]string{}, true))
	require.Equal(t, map[string]map[string]string{"d": {}}, is())

	require.Equal(t, []string{"e"}, p.Want(map[string]bool{"e": true}))
	require.Empty(t, is(), "nobody wants them any more")
	require.Equal(t, []string{"e"}, p.Wanted())
}

func TestAnswersAboutAConfigurationCountInTheOrderOfTheirQuestions(t *testing.T) {
	p := lattice.NewProjection(terms)
	p.Want(map[string]bool{"c": true})
	first := p.Mark()
	p.Apply(says(lattice.HostStopped{}), start)
	second := p.Mark()
	p.Config("c", map[string]string{"a": "2"}, true, second)
	require.Empty(t, p.Config("c", map[string]string{"a": "1"}, true, first))
	p.Config("c", map[string]string{"a": "3"}, true, second)
	require.Equal(t, map[string]string{"a": "3"}, p.State([]string{"c"}).Configs["c"])
}

func TestHostsAreShownInFull(t *testing.T) {
	p := known(t)
	p.Apply(says(lattice.ProviderHealth{ID: "web", Health: lattice.Healthy}), at(4))
	web := component("web", 1, "s7")
	web.Health = lattice.Healthy
	require.Equal(t, []lattice.Host{{
		ID: "NA", Name: "blue-sea", Labels: map[string]string{"zone": "eu"}, Version: "1.9.2", Uptime: 70 * time.Second,
		LastSeen: at(4), LeaseEnd: at(39),
		Components: []lattice.Entry{component("api", 2, "s1")}, Providers: []lattice.Entry{web},
	}}, p.Hosts(at(10)))
	require.Equal(t, "shop-front", web.App())
	require.Empty(t, lattice.Entry{Annotations: map[string]string{"wasmcloud.dev/appspec": "shop-front"}}.App())
}

func TestAChangeConcernsThoseWhoUseWhatChanged(t *testing.T) {
	uses := scaler.Resources{Links: []scaler.Tuple{shopLink.Tuple()}, Configs: []string{"c"}}
	ids := []string{"shop_front-api"}
	rival := shopLink.Tuple()
	rival.Target = "elsewhere"
	for _, c := range []struct {
		change lattice.Change
		want   bool
	}{
		{lattice.Change{}, false},
		{lattice.Change{Hosts: []string{"NA"}}, true},
		{lattice.Change{Started: []string{"NA"}}, true},
		{lattice.Change{IDs: []string{"jobs"}, Apps: []string{"mail"}}, false},
		{lattice.Change{IDs: []string{"shop_front-api"}}, true},
		{lattice.Change{IDs: []string{"former"}, Apps: []string{"shop-front"}}, true},
		{lattice.Change{Configs: []string{"d"}}, false},
		{lattice.Change{Configs: []string{"b", "c"}}, true},
		{lattice.Change{Links: []scaler.Tuple{rival}}, true},
		{lattice.Change{Links: []scaler.Tuple{{Source: "jobs"}}}, false},
	} {
		require.Equal(t, c.want, c.change.Concerns("shop-front", ids, uses), "%+v", c.change)
		require.Equal(t, c.change.Concerns("", nil, scaler.Resources{}), len(c.change.Hosts)+len(c.change.Started) > 0)
	}
}

func TestChangesAddUp(t *testing.T) {
	a := lattice.Change{Hosts: []string{"NB"}, IDs: []string{"api"}, Links: []scaler.Tuple{{Source: "b"}}}
	b := lattice.Change{Hosts: []string{"NA", "NB"}, Configs: []string{"c"}, Links: []scaler.Tuple{{Source: "a"}}}
	require.Equal(t, lattice.Change{
		Hosts: []string{"NA", "NB"}, IDs: []string{"api"}, Configs: []string{"c"}, Links: []scaler.Tuple{{Source: "a"}, {Source: "b"}},
	}, a.And(b))
	require.Equal(t, a, a.And(lattice.Change{}))
	require.True(t, lattice.Change{}.And(lattice.Change{}).Empty())
}
