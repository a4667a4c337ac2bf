package e2e

import (
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// waitsOn: what an application waits for goes on over a deployment of another
// version, unless that ends it.
func waitsOn(s *site) {
	s.host("us", "zone=us")
	version := func(version, name string, count int) object {
		return manifest("shop", version, provider(name, httpImage, instances(count, on("eu", "zone=eu", 1))))
	}
	const noneOfV1 = "spread eu of shop-one: of 1 host alive, none has labels zone=eu"
	s.deploy(version("v1", "one", 1))
	since := s.waitsIn("no_eligible_host", wadm.Waiting, noneOfV1)

	const noneOfV2 = "spread eu of shop-two: of 1 host alive, none has labels zone=eu"
	s.deploy(version("v2", "two", 2))
	require.Equal(s.t, since, s.waitsIn("no_eligible_host", wadm.Waiting, noneOfV2))
	require.Equal(s.t, 1, s.count("SELECT count(*) FROM open_waits WHERE workflow_id = '"+s.workflowID("shop")+"'"))

	s.host("eu", "zone=eu")
	const fewOfV2 = "spread eu of shop-two: 1 of 2 instances, for it runs at most once on each of 1 host"
	few := s.waitsIn("not_enough_hosts", wadm.Failed, fewOfV2)
	require.True(s.t, few.After(since), "that is another wait")
	s.eventually("what can be done is done", func() bool { return s.runs()["shop-two"] == 1 }, func() any { return s.runs() })
	s.deploy(version("v3", "two", 2))
	require.Equal(s.t, few, s.waitsIn("not_enough_hosts", wadm.Failed, fewOfV2))

	s.host("eu-too", "zone=eu")
	s.becomes("shop", wadm.Deployed)
	s.waitsNoMore()
	require.Equal(s.t, map[string]int{"provider.start shop-two": 2}, s.told())
}

// waitsIn asserts that shop waits for a host, with the one scaler that it has,
// wherever that is shown, and returns since when.
func (s *site) waitsIn(code string, as wadm.StatusType, reason string) time.Time {
	s.t.Helper()
	got := s.until("shop", code, func(got wadm.Status) bool { return got.Status.Message == reason })
	require.NotNil(s.t, got.Status.Since)
	since := *got.Status.Since
	want := wadm.StatusInfo{Type: as, Message: reason, Reason: code, Since: &since}
	require.Equal(s.t, want, got.Status)
	require.Len(s.t, got.Scalers, 1)
	require.Equal(s.t, want, got.Scalers[0].Status)

	var list api.WaitList
	require.NoError(s.t, jsonOf(s.must("waits", "--lattice", s.name, "-o", "json"), &list))
	require.Len(s.t, list.Waits, 1)
	w := list.Waits[0]
	require.Equal(s.t, []any{"lattice", code, reason, "shop"}, []any{w.Kind, w.Code, w.Reason, w.Application})
	require.WithinDuration(s.t, since, w.Since, time.Millisecond)
	s.attributesShow(code, since)
	return since
}

// sharesUnderAnID: those who refer to a component follow the id that it runs
// under, and whether it is deployed.
func sharesUnderAnID(s *site) {
	platform := func(version, id string, traits ...object) object {
		return shared(manifest("platform", version, with(component("counter", webImage, traits...), "id", id)))
	}
	s.host("h")
	s.deploy(platform("v1", "the-counter", instances(1)))
	s.deploy(manifest("consumer", "v1",
		ofPlatform(component("counter", webImage)), provider("http", httpImage, link("counter", config("listen", "8001")))))
	s.becomes("platform", wadm.Deployed)
	s.becomes("consumer", wadm.Deployed)
	require.Equal(s.t, []string{"consumer-http->the-counter"}, s.linked())

	s.undeploy("platform")
	got := s.until("consumer", "waiting for the platform", func(got wadm.Status) bool { return got.Status.Reason == "shared_application_missing" })
	require.Equal(s.t, "component counter of shared application platform is not deployed", got.Status.Message)
	require.Equal(s.t, []string{"consumer-http->the-counter"}, s.linked(), "it is there for when the component is back")
	s.eventually("the component is gone", func() bool { return s.runs()["the-counter"] == 0 }, func() any { return s.runs() })

	// Nothing changes in the lattice when what is deployed cannot start.
	s.deploy(platform("v2", "the-counter", instances(1, on("eu", "zone=eu", 1))))
	s.becomes("platform", wadm.Waiting)
	s.becomes("consumer", wadm.Deployed)

	s.deploy(platform("v3", "another-counter", instances(1)))
	s.becomes("platform", wadm.Deployed)
	s.eventually("the link leads to the other id", func() bool {
		links := s.linked()
		return len(links) == 1 && links[0] == "consumer-http->another-counter"
	}, func() any { return s.linked() })
	s.becomes("consumer", wadm.Deployed)
}

// asksInVain: what hosts do not say about a configuration is no secret of the
// status, holds up nobody else, and is asked again.
func asksInVain(s *site) {
	s.host("h")
	answered := s.l.Script(simhost.Rule{Command: "config.get", ID: "shop-listen", Ignore: true})
	s.deploy(shop("shop", "v1"))
	const unknown = "no host says whether configuration shop-listen exists"
	got := s.until("shop", "waiting for an answer alone", func(got wadm.Status) bool { return got.Status.Message == unknown })
	require.Equal(s.t, wadm.StatusInfo{Type: wadm.Waiting, Message: unknown, Reason: "config_missing", Since: got.Status.Since}, got.Status)
	s.eventually("what does not need it runs", func() bool { return s.runs()["shop-web"] == 4 }, func() any { return s.runs() })
	require.Zero(s.t, s.told()["config.put shop-listen"], "what may be there is not put over")
	s.deploy(manifest("other", "v1", component("web", webImage, instances(1))))
	s.becomes("other", wadm.Deployed)

	answered()
	s.becomes("shop", wadm.Deployed)
	require.Equal(s.t, shopRuns["shop-http"], s.runs()["shop-http"])
	require.Equal(s.t, 1, s.told()["config.put shop-listen"])
}
